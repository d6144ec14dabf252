package table

import "time"

// This file decides which channels an engine listens to, and for how long.
//
//	listen ──Subscribe──► confirmed ──► told, for each message ──► unlisten ──lingerTime──► Unsubscribe
//	                         ▲    └── the connection is lost ──┐
//	                         └────────────────────────────────┘
//
// All listeners of a channel share it, whatever lock they wait for: "a" and "{a}" have one base channel, and that of
// "{a}:j" is the channel of the owner j that waits for "a".

// lingerTime is the least time for which an unused channel stays subscribed: a contended lock would else subscribe and
// unsubscribe with every hand-over.
const lingerTime = 2 * time.Second

// channelSlice is how many unused channels one event deals with.
const channelSlice = 256

// channels is the wanted channels of a table.
type channels struct {
	*effects

	byName map[string]*channel
	unused line[*channel] // without listeners, the one that is so for longest first
	round  int
	timed  bool // TidyDue follows
}

// channel is one wanted channel. It is kept while it has listeners, and for lingerTime after them.
type channel struct {
	// The listeners: what a message on the channel concerns.
	queues  line[*Queue]  // whose base channel it is
	others  line[*Queue]  // whose lock was seen in the form of another class of Redisson's, which tells of a release on it
	byName  line[*Queue]  // whose shared place is woken on it
	waiters line[*Waiter] // woken on it by name

	name    string
	refs    int
	ready   bool   // confirmed at least once; every later confirmation is a wake-up, so a gap loses nothing
	count   uint64 // confirmations and messages so far
	refused bool   // by Redis

	since    int // the round in which refs became 0
	inUnused node[*channel]
}

// listen returns the channel for one more listener. Each call is followed by one of unlisten.
func (x *channels) listen(name string) *channel {
	c := x.byName[name]
	if c == nil {
		c = &channel{name: name}
		x.byName[name] = c
		x.emit(Effect{Op: Subscribe, Channel: name})
	} else if c.refs == 0 {
		x.unused.Remove(&c.inUnused)
	}
	c.refs++
	return c
}

// unlisten is the end of a listener.
func (x *channels) unlisten(c *channel) {
	c.refs--
	if c.refs > 0 || c.refused {
		return
	}
	c.since = x.round
	x.unused.Push(&c.inUnused, c)
	if !x.timed {
		x.timed = true
		x.emit(Effect{Op: Tidy, Delay: lingerTime})
	}
}

// TidyDue says that the timer of the effect Tidy has run out. Channels that were unused for a whole round are
// unsubscribed, some at a time. A round lasts for lingerTime.
func (x *channels) TidyDue() {
	for n := 0; x.unused.Len() > 0 && x.unused.First().since < x.round; n++ {
		if n == channelSlice {
			x.emit(Effect{Op: Tidy, Delay: lingerTime / 100})
			return
		}
		c := x.unused.First()
		x.unused.Remove(&c.inUnused)
		delete(x.byName, c.name)
		x.emit(Effect{Op: Unsubscribe, Channel: c.name})
	}
	x.round++
	if x.timed = x.unused.Len() > 0; x.timed {
		x.emit(Effect{Op: Tidy, Delay: lingerTime})
	}
}

// confirmed notes that Redis has confirmed the subscription, for the first time or after a new connection. missed:
// messages may have been lost since the connection before. It returns nil if the channel is not wanted, as told and
// refuse do.
func (x *channels) confirmed(name string) (c *channel, missed bool) {
	if c = x.told(name); c != nil {
		missed, c.ready = c.ready, true
	}
	return c, missed
}

// told notes a message.
func (x *channels) told(name string) *channel {
	c := x.byName[name]
	if c != nil {
		c.count++
	}
	return c
}

// refuse notes that Redis does not let us listen to the channel. The next listener asks Redis anew.
func (x *channels) refuse(name string) *channel {
	c := x.byName[name]
	if c != nil {
		delete(x.byName, name)
		if c.refused = true; c.refs == 0 {
			x.unused.Remove(&c.inUnused)
		}
	}
	return c
}

// channelMark is how much a channel had told when it was noted; the zero value: it was not subscribed.
type channelMark struct {
	channel *channel
	count   uint64
}

// mark notes what the channel has told so far. nil is a channel that is not subscribed.
func (c *channel) mark() channelMark {
	if c == nil || !c.ready {
		return channelMark{}
	}
	return channelMark{c, c.count}
}

// missed reports whether the channel has told something since the mark, or was not subscribed all the time. nil has
// told nothing since it was not subscribed.
func (m channelMark) missed(c *channel) bool {
	return m.channel != c || c != nil && m.count != c.count
}
