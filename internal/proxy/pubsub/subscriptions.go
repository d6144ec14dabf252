package pubsub

import (
	"maps"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Session is the session of the subscriptions. All methods but the last three require its lock.
type Session interface {
	// Open returns a connection of the session's own to a server. If none is free, it returns nil, and calls then
	// later, from another goroutine, with the connection or the reply that says why there is none.
	Open(at topology.Node, then func(c Conn, refusal []byte)) (c Conn, withdraw func() bool)

	// Put adds bytes to the replies of a slot; more: they end within one. Answered counts replies that have become
	// whole.
	Put(at reply.ID, b []byte, more bool)
	Answered(at reply.ID, n int)

	// Resume ends the wait for the reply to a subscription command.
	Resume()

	// Message sends a message to the client.
	Message(b []byte)

	// Later has f called after a pause and a refresh of the view of the cluster.
	Later(hint topology.Node, pause time.Duration, f func())

	// CutOff ends the session: its subscriptions are lost.
	CutOff()

	// Enter runs f with the session locked, and has the session go on, unless the client gets no more. Flush sends the
	// output to the client. Do is both. They require no locks.
	Enter(f func()) bool
	Flush()
	Do(f func()) bool
}

// A Conn is a connection of the session's own.
type Conn interface {
	Observe(stream.Observer)
	ReadFrames()
	Append(b []byte, to stream.Receiver, tag uint64, n int) error
	Send()
	Discard()
	Connected() bool
	Rejected() bool
	Refusal() []byte
}

// A Cluster knows the servers.
type Cluster interface {
	// View is the present view.
	View() *topology.View

	// Watch has f called from another goroutine whenever the view has changed, until stop is called. f may still be
	// running then.
	Watch(f func()) (stop func())

	// Refused notes that a server has refused a subscription for another server's sake.
	Refused(why topology.RefusalReason)

	// FailoverWait is how long a command waits for a server that moves.
	FailoverWait() time.Duration
}

// Subscriptions are those of one session.
type Subscriptions struct {
	session Session // immutable: connections ask for it without the session's lock
	cluster Cluster // immutable
	state
}

// state is what Close forgets. It requires the session's lock.
type state struct {
	proto int

	wanted      map[channel]*subscription
	told        [kinds]int // channels of which the client knows
	subscribers map[topology.Node]*subscriber
	stop        func() // ends the watch over the view; nil: there is none

	request  *request             // in progress; nil: none
	early    []message            // about its channels
	homeless map[channel]*request // channels that some server should have, and the requests that wait for it; nil: none does
	seeking  bool                 // they are placed when the view has been refreshed
	attempts topology.Attempts    // to place them
	bytes    int                  // of names and early messages
}

// A subscription to one channel.
type subscription struct {
	told bool          // the client knows of it
	at   []*subscriber // confirmed
}

// patience is the time after which a session ends whose subscriptions have no server: its client should know.
const patience = 30 * time.Second

// channelCost is the memory of a subscription besides its name: an estimate.
const channelCost = 256

// Open prepares the subscribers of a session.
func (e *Subscriptions) Open(s Session, c Cluster) { e.session, e.cluster = s, c }

// Listening reports whether there is any subscription.
func (e *Subscriptions) Listening() bool { return len(e.wanted) > 0 }

// Bytes is the memory that they take.
func (e *Subscriptions) Bytes() (n int) {
	n = e.bytes + len(e.wanted)*channelCost
	if len(e.subscribers) == 0 { // of most sessions, which ask each time that they are used: a range over a map takes longer
		return n
	}
	for _, one := range e.subscribers {
		n += one.holding
	}
	return n
}

// Counts are the numbers of subscriptions that the client knows.
func (e *Subscriptions) Counts() (channelCount, patternCount, shardCount int64) {
	return int64(e.told[channels]), int64(e.told[patterns]), int64(e.told[shards])
}

// nodes are the servers at which a channel is received. There may be none at present.
func (e *Subscriptions) nodes(t channel) (all []topology.Node) {
	v := e.cluster.View()
	if owner := v.Owner(t.slot()); owner != nil {
		all = append(all, topology.Node(owner.ID))
	}
	if len(all) == 0 && t.kind != shards && len(v.Nodes()) > 0 {
		all = append(all, topology.Node(v.Nodes()[0].ID))
	}
	if len(all) == 0 || !t.everywhere() {
		return all
	}
	for _, n := range v.Nodes() {
		if at := topology.Node(n.ID); at != all[0] {
			all = append(all, at)
		}
	}
	return all
}

// place subscribes to channels where they belong. r is the request that they are part of; nil: the client knows of
// them.
func (e *Subscriptions) place(list []channel, r *request) {
	for _, t := range list {
		nodes := e.nodes(t)
		if len(nodes) == 0 {
			e.evict(t, r)
			continue
		}
		for _, at := range nodes {
			if one := e.at(at); !one.knows(t) {
				one.join(t, r)
			}
		}
	}
	e.send()
	e.rehome(topology.Any)
}

// at is the subscriber at a server.
func (e *Subscriptions) at(node topology.Node) *subscriber {
	one := e.subscribers[node]
	if one == nil {
		one = &subscriber{of: e, at: node, asked: map[channel]bool{}}
		e.subscribers[node] = one
		one.open()
	}
	return one
}

// send sends the commands of all subscribers, and closes the ones that have no channels any more.
func (e *Subscriptions) send() {
	for node, one := range e.subscribers {
		if one.send(); len(one.asked) == 0 && len(one.asks) == 0 {
			one.close()
			delete(e.subscribers, node)
		}
	}
	if len(e.wanted) == 0 && e.request == nil && e.stop != nil {
		e.stop()
		e.stop = nil
	}
}

// evict notes that a channel has no server at present.
func (e *Subscriptions) evict(t channel, r *request) {
	if before := e.homeless[t]; before != nil {
		return // the request knows
	}
	if e.homeless[t] = r; r != nil {
		r.left++
	}
}

// rehome finds servers for homeless channels when the view has been refreshed. hint should know of the change.
func (e *Subscriptions) rehome(hint topology.Node) {
	switch {
	case len(e.homeless) == 0 || e.seeking:
		return
	case !e.attempts.Refused(patience):
		e.session.CutOff()
		return
	}
	e.seeking = true
	e.session.Later(hint, e.attempts.Pause(), func() {
		e.inParts(slices.Collect(maps.Keys(e.homeless)), e.shelter, func() {
			e.seeking = false
			e.rehome(topology.Any)
			e.settle()
		})
	})
}

// shelter places those of some channels that are still homeless.
func (e *Subscriptions) shelter(some []channel) {
	list := map[*request][]channel{}
	for _, t := range some {
		r, waits := e.homeless[t]
		if !waits {
			continue
		}
		delete(e.homeless, t)
		if list[r] = append(list[r], t); r != nil {
			r.left--
		}
	}
	for r, part := range list {
		e.place(part, r)
	}
}

// inParts calls f for a list of channels, some at a time, and then done: a client chooses how many there are. Each part
// is a step of its own. Channels of a later part may have ended before it.
func (e *Subscriptions) inParts(list []channel, f func(part []channel), done func()) {
	n := min(len(list), maxAsked)
	if f(list[:n]); n == len(list) {
		done()
		return
	}
	e.next(func() { e.inParts(list[n:], f, done) })
}

// next calls f in a step of its own: an event loop has other clients, too.
func (e *Subscriptions) next(f func()) { time.AfterFunc(0, func() { e.session.Do(f) }) }

// viewChanged moves subscriptions after a change of the view. Requires no locks.
func (e *Subscriptions) viewChanged() {
	e.session.Do(func() { e.inParts(slices.Collect(maps.Keys(e.wanted)), e.adjust, func() {}) })
}

// adjust moves those of some subscriptions that belong elsewhere. The others cost a look.
func (e *Subscriptions) adjust(some []channel) {
	var list []channel
	for _, t := range some {
		if _, waits := e.homeless[t]; waits || e.wanted[t] == nil {
			continue
		}
		for _, at := range e.nodes(t) {
			if one := e.subscribers[at]; one == nil || !one.knows(t) {
				list = append(list, t)
				break
			}
		}
	}
	e.place(list, nil)
}

func (e *Subscriptions) forget(t channel) {
	delete(e.wanted, t)
	delete(e.homeless, t)
	e.bytes -= len(t.name)
}

// Again has all subscriptions begin anew, on connections of the session's present identity.
func (e *Subscriptions) Again(proto int) {
	if e.proto = proto; !e.Listening() {
		return
	}
	var list []channel
	for t, sub := range e.wanted {
		sub.at = nil
		list = append(list, t)
	}
	for _, one := range e.subscribers {
		one.close()
	}
	clear(e.subscribers)
	e.inParts(list, e.adjust, func() {})
}

// Close ends all subscriptions. The client is told nothing.
func (e *Subscriptions) Close() {
	for _, one := range e.subscribers {
		one.close()
	}
	if e.stop != nil {
		e.stop()
	}
	e.state = state{}
}

// lost notes that a server does not hear a channel any more, and has another one found. r is the request that waits for
// it; nil: none does.
func (e *Subscriptions) lost(t channel, r *request, at topology.Node) {
	if e.wanted[t] == nil {
		return
	}
	if r != e.request {
		r = nil
	}
	e.evict(t, r)
	e.rehome(at)
}

// hears notes that a server has confirmed a channel. The servers at which it does not belong any more are left.
func (e *Subscriptions) hears(t channel, by *subscriber) {
	sub := e.wanted[t]
	if sub == nil {
		return
	}
	if sub.at = append(sub.at, by); !sub.told && e.isHome(t, by) {
		last := len(sub.at) - 1
		sub.at[0], sub.at[last] = by, sub.at[0]
	}
	nodes := e.nodes(t)
	for _, one := range slices.Clone(sub.at) {
		if one != by && !slices.Contains(nodes, one.at) {
			one.leave(t, nil)
		}
	}
}

// isHome reports whether the messages of a channel are sent to the server of a subscriber.
func (e *Subscriptions) isHome(t channel, by *subscriber) bool {
	nodes := e.nodes(t)
	return len(nodes) > 0 && nodes[0] == by.at
}

// without notes that a subscriber has no subscription to a channel any more.
func (e *Subscriptions) without(t channel, by *subscriber) {
	if sub := e.wanted[t]; sub != nil {
		sub.at = slices.DeleteFunc(sub.at, func(one *subscriber) bool { return one == by })
	}
}

// received passes a message on. Of the servers that hear a channel, the first one tells the messages that all are told.
// Before the client knows of the subscription that is the server to which the messages are sent: another one may hear
// late of a message that is older than the subscription.
func (e *Subscriptions) received(by *subscriber, t channel, source, b []byte) {
	sub := e.wanted[t]
	if sub == nil || !slices.Contains(sub.at, by) {
		return
	}
	if t.kind != patterns {
		source = []byte(t.name)
	}
	if (sub.at[0] != by || !sub.told && !e.isHome(t, by)) && !isEvent(source) {
		return
	}
	if !sub.told {
		e.early = append(e.early, message{t, slices.Clone(b)})
		e.bytes += len(b)
		return
	}
	e.session.Message(b)
}

// calm forgets the attempts if every channel is received where it belongs.
func (e *Subscriptions) calm() {
	for _, one := range e.subscribers {
		if len(one.asks)+len(one.unsent) > 0 {
			return
		}
	}
	if len(e.homeless) == 0 {
		e.attempts = topology.Attempts{}
	}
}
