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
	ReadReplies()
	Append(b []byte, to stream.Receiver, tag uint64, n int) error
	Send()
	Release()
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
	homeless map[channel]*request // the requests that wait for a server of these channels; nil: there are none
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
func (s *Subscriptions) Open(to Session, c Cluster) { s.session, s.cluster = to, c }

// Listening reports whether there is any subscription.
func (s *Subscriptions) Listening() bool { return len(s.wanted) > 0 }

// Bytes is the memory that they take.
func (s *Subscriptions) Bytes() (n int) {
	n = s.bytes + len(s.wanted)*channelCost
	// Most sessions have none, and ask each time that they are used: a range over a map takes longer.
	if len(s.subscribers) == 0 {
		return n
	}
	for _, one := range s.subscribers {
		n += one.holding
	}
	return n
}

// Counts are the numbers of subscriptions that the client knows.
func (s *Subscriptions) Counts() (channelCount, patternCount, shardCount int64) {
	return int64(s.told[Channels]), int64(s.told[Patterns]), int64(s.told[Shards])
}

// nodes are the servers at which a channel is received. There may be none at present.
func (s *Subscriptions) nodes(ch channel) (all []topology.Node) {
	v := s.cluster.View()
	if owner := v.Owner(ch.slot()); owner != nil {
		all = append(all, topology.Node(owner.ID))
	}
	if len(all) == 0 && ch.kind != Shards && len(v.Nodes()) > 0 {
		all = append(all, topology.Node(v.Nodes()[0].ID))
	}
	if len(all) == 0 || !ch.everywhere() {
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
func (s *Subscriptions) place(list []channel, r *request) {
	for _, ch := range list {
		nodes := s.nodes(ch)
		if len(nodes) == 0 {
			s.noteHomeless(ch, r)
			continue
		}
		for _, at := range nodes {
			if one := s.at(at); !one.knows(ch) {
				one.join(ch, r)
			}
		}
	}
	s.sendAndClose()
	s.rehome(topology.Any)
}

// at is the subscriber at a server.
func (s *Subscriptions) at(node topology.Node) *subscriber {
	one := s.subscribers[node]
	if one == nil {
		one = &subscriber{of: s, at: node, asked: map[channel]bool{}}
		s.subscribers[node] = one
		one.open()
	}
	return one
}

// sendAndClose sends the commands of all subscribers, ends those that have no channels any more, and ends the watch if
// nothing is left.
func (s *Subscriptions) sendAndClose() {
	for node, one := range s.subscribers {
		if one.send(); len(one.asked) == 0 && len(one.asks) == 0 {
			one.giveBack()
			delete(s.subscribers, node)
		}
	}
	if len(s.wanted) == 0 && s.request == nil && s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// noteHomeless notes that a channel has no server at present.
func (s *Subscriptions) noteHomeless(ch channel, r *request) {
	if before := s.homeless[ch]; before != nil {
		return // the request knows
	}
	if s.homeless[ch] = r; r != nil {
		r.left++
	}
}

// rehome finds servers for homeless channels when the view has been refreshed. hint should know of the change.
func (s *Subscriptions) rehome(hint topology.Node) {
	switch {
	case len(s.homeless) == 0 || s.seeking:
		return
	case !s.attempts.Refused(patience):
		s.session.CutOff()
		return
	}
	s.seeking = true
	s.session.Later(hint, s.attempts.Pause(), func() {
		s.inParts(slices.Collect(maps.Keys(s.homeless)), s.shelter, func() {
			s.seeking = false
			s.rehome(topology.Any)
			s.settle()
		})
	})
}

// shelter places those of some channels that are still homeless.
func (s *Subscriptions) shelter(some []channel) {
	list := map[*request][]channel{}
	for _, ch := range some {
		r, waits := s.homeless[ch]
		if !waits {
			continue
		}
		delete(s.homeless, ch)
		if list[r] = append(list[r], ch); r != nil {
			r.left--
		}
	}
	for r, part := range list {
		s.place(part, r)
	}
}

// inParts calls f for a list of channels, some at a time, and then done: a client chooses how many there are. Each part
// is a step of its own. Channels of a later part may have ended before it.
func (s *Subscriptions) inParts(list []channel, f func(part []channel), done func()) {
	n := min(len(list), maxAsked)
	if f(list[:n]); n == len(list) {
		done()
		return
	}
	s.next(func() { s.inParts(list[n:], f, done) })
}

// next calls f in a step of its own: an event loop has other clients, too.
func (s *Subscriptions) next(f func()) { time.AfterFunc(0, func() { s.session.Do(f) }) }

// viewChanged moves subscriptions after a change of the view. Requires no locks.
func (s *Subscriptions) viewChanged() {
	s.session.Do(func() { s.inParts(slices.Collect(maps.Keys(s.wanted)), s.adjust, func() {}) })
}

// adjust moves those of some subscriptions that belong elsewhere. The others cost a look.
func (s *Subscriptions) adjust(some []channel) {
	var list []channel
	for _, ch := range some {
		if _, waits := s.homeless[ch]; waits || s.wanted[ch] == nil {
			continue
		}
		for _, at := range s.nodes(ch) {
			if one := s.subscribers[at]; one == nil || !one.knows(ch) {
				list = append(list, ch)
				break
			}
		}
	}
	s.place(list, nil)
}

func (s *Subscriptions) forget(ch channel) {
	delete(s.wanted, ch)
	delete(s.homeless, ch)
	s.bytes -= len(ch.name)
}

// Again has all subscriptions begin anew, on connections of the session's present identity.
func (s *Subscriptions) Again(proto int) {
	if s.proto = proto; !s.Listening() {
		return
	}
	var list []channel
	for ch, sub := range s.wanted {
		sub.at = nil
		list = append(list, ch)
	}
	for _, one := range s.subscribers {
		one.close()
	}
	clear(s.subscribers)
	s.inParts(list, s.adjust, func() {})
}

// Close ends all subscriptions. The client is told nothing.
func (s *Subscriptions) Close() {
	for _, one := range s.subscribers {
		one.close()
	}
	if s.stop != nil {
		s.stop()
	}
	s.state = state{}
}

// lost notes that a server does not hear a channel any more, and has another one found. r is the request that waits for
// it; nil: none does.
func (s *Subscriptions) lost(ch channel, r *request, at topology.Node) {
	if s.wanted[ch] == nil {
		return
	}
	if r != s.request {
		r = nil
	}
	s.noteHomeless(ch, r)
	s.rehome(at)
}

// hears notes that a server has confirmed a channel. The servers at which it does not belong any more are left.
func (s *Subscriptions) hears(ch channel, by *subscriber) {
	sub := s.wanted[ch]
	if sub == nil {
		return
	}
	if sub.at = append(sub.at, by); !sub.told && s.isHome(ch, by) {
		last := len(sub.at) - 1
		sub.at[0], sub.at[last] = by, sub.at[0]
	}
	nodes := s.nodes(ch)
	for _, one := range slices.Clone(sub.at) {
		if one != by && !slices.Contains(nodes, one.at) {
			one.leave(ch, nil)
		}
	}
}

// isHome reports whether the messages of a channel are sent to the server of a subscriber.
func (s *Subscriptions) isHome(ch channel, by *subscriber) bool {
	nodes := s.nodes(ch)
	return len(nodes) > 0 && nodes[0] == by.at
}

// without notes that a subscriber has no subscription to a channel any more.
func (s *Subscriptions) without(ch channel, by *subscriber) {
	if sub := s.wanted[ch]; sub != nil {
		sub.at = slices.DeleteFunc(sub.at, func(one *subscriber) bool { return one == by })
	}
}

// received passes a message on. Of the servers that hear a channel, the first one tells the messages that all are told.
// Before the client knows of the subscription that is the server to which the messages are sent: another one may hear
// late of a message that is older than the subscription.
func (s *Subscriptions) received(by *subscriber, ch channel, source, b []byte) {
	sub := s.wanted[ch]
	if sub == nil || !slices.Contains(sub.at, by) {
		return
	}
	if ch.kind != Patterns {
		source = []byte(ch.name)
	}
	if (sub.at[0] != by || !sub.told && !s.isHome(ch, by)) && !isEvent(source) {
		return
	}
	if !sub.told {
		s.early = append(s.early, message{ch, slices.Clone(b)})
		s.bytes += len(b)
		return
	}
	s.session.Message(b)
}

// calm forgets the attempts if every channel is received where it belongs.
func (s *Subscriptions) calm() {
	for _, one := range s.subscribers {
		if len(one.asks)+len(one.unsent) > 0 {
			return
		}
	}
	if len(s.homeless) == 0 {
		s.attempts = topology.Attempts{}
	}
}
