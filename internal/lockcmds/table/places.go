package table

// Queued reports whether the crowd's place is in the queue in Redis, as far as is known.
func (q *Queue) Queued() bool { return q.place.Queued() }

// queued reports whether a waiter here has a place in Redis.
func (q *Queue) queued() bool { return q.fair.Len() > 0 || q.place.Queued() }

// occupied reports whether a waiter here has that place.
func (t *waits) occupied(key, place string) bool {
	q := t.locks[key].queue
	return q != nil && (q.places[place] != nil || place == q.names.Place && q.place.Queued())
}

// abandoned is the waiter's own place in Redis, if it has one that no other waiter here has for the same owner; else
// empty.
func (t *waits) abandoned(w *Waiter, key string) string {
	if w.Fair && w.Placed && !t.occupied(key, w.Place) {
		return w.Place
	}
	return ""
}

// abandonPlace gives the crowd's place up when the last of its waiters has gone. It returns the place if it may be in
// the queue in Redis.
func (q *Queue) abandonPlace() (place string) {
	if q.byName == nil {
		return ""
	}
	q.byName.byName.Remove(&q.inByName)
	q.table.unlisten(q.byName)
	if q.place.Queued() {
		place = q.names.Place
	}
	q.byName, q.place = nil, crowd{}
	return place
}

// refresh keeps the deadlines of our places ahead of Redis's clock, three times per wait.
func (q *Queue) refresh() {
	if !q.refreshing {
		q.refreshing = true
		q.setTimer(freshen, q.table.config.Wait/3, 0)
	}
}

func (q *Queue) refreshDue() {
	if q.refreshing = q.queued(); !q.refreshing {
		return
	}
	q.setTimer(freshen, q.table.config.Wait/3, 0)
	places := make([]string, 0, len(q.places)+1)
	if q.place.Queued() {
		places = append(places, q.names.Place)
	}
	for w := range q.fair.Values() {
		places = append(places, w.Place)
	}
	q.table.emit(Effect{Op: Refresh, Queue: q, Places: places})
}

// Refreshed is the answer to the effect Refresh. lost says that places were not there any more: a client of Redisson
// has dropped them. The next attempt takes new ones.
func (q *Queue) Refreshed(lost bool) {
	if !lost {
		return
	}
	q.woken = true
	q.tryPlain()
	q.table.each(q.fair.All(), q.table.try)
}

// released is a message on the base channel. The head in Redis is woken by name; if it is not ours and does not react,
// no message would come.
func (q *Queue) released() {
	q.reaper.freed = true // another owner may have been faster than the head
	if w := q.fair.First(); w != nil && w.first {
		q.table.try(w) // plain locks of Redisson's wake no waiter by name
	}
	if q.queued() {
		q.watchHead()
	}
}

// lingerLimit bounds how many queues linger: clients choose the keys, and a reaper may remember SeenLimit places. At
// the limit, further queues end with their last waiter, and each that lingers comes to its look. No client is charged
// for them, so a queue with a name longer than lingerName ends with its last waiter, too.
const (
	lingerLimit = 100
	lingerName  = 4 << 10
)

// linger has a reaper that watches go on for as long as a whole watch takes, when a waiter has left and none here has a
// place in Redis. Many programs wait for a short time, again and again: the watch would begin anew with each wait, and
// never come to a look. And who has got the lock may have passed a first place that does not listen: Redisson's waiters
// behind it wait until it is removed. The queue keeps its base channel, on which the reaper hears of releases.
func (q *Queue) linger() {
	t := q.table
	switch {
	case q.reaper.phase == asleep || t.stopped || q.denied != nil || len(q.names.Key) > lingerName:
		return
	case !q.lingers && t.lingering.Len() == lingerLimit:
		return
	case !q.lingers:
		q.lingers = true
		t.lingering.Push(&q.inLingering, q)
	}
	q.setTimer(lingerOver, t.config.StaleHead+(MaxLooks+1)*LookAgain, 0)
}

// forget ends lingering, and the queue if it has no waiters.
func (q *Queue) forget() {
	if !q.lingers {
		return
	}
	q.lingers = false
	q.table.lingering.Remove(&q.inLingering)
	if q.empty() {
		q.end()
	}
}
