package session

import (
	"math/rand/v2"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A cluster knows the servers. It is package upstream, or a test without servers.
type cluster interface {
	// View is the present view; nil: there is one server, and no cluster.
	View() *topology.View

	// Refresh has then called from another goroutine when the view has been refreshed by a question that has begun
	// after this call.
	Refresh(hint topology.Node, then func())

	// Refused notes that a server has refused a command for another server's sake.
	Refused(why topology.RefusalReason)

	// Silent reports whether a server has not answered lately.
	Silent(at topology.Node) bool

	// FailoverWait is how long a command is sent again.
	FailoverWait() time.Duration
}

// shards is the part of a session in front of a cluster: the view that it routes by, and its requests at the servers.
// In front of one server all of it is empty.
type shards struct {
	cluster cluster
	view    *topology.View // nil: there is no cluster

	sending   int        // requests that are on their way
	pause     *retrial   // requests were refused; nil: none has been that is not answered
	spare     []*request // answered ones
	sentBytes int        // of the requests that are not answered: they may have to be sent again
	mayMulti  bool       // the identity has the right to MULTI
}

// serverOfKeys is the slot and the server for a command with these keys. No request is on its way.
func (s *Session) serverOfKeys(keys []string) (slot int, at topology.Node) {
	s.adopt()
	if len(keys) == 0 {
		return -1, s.anyServer()
	}
	slot = hashslot.Of([]byte(keys[0]))
	return slot, s.ownerOf(slot)
}

// clustered reports whether there is a cluster.
func (s *Session) clustered() bool { return s.view != nil }

// outdated reports whether there is a newer view. The session adopts it when nothing is on its way: otherwise a command
// could overtake one that the old owner of its slot refuses.
func (s *Session) outdated() bool { return s.view != s.cluster.View() }

// adopt takes over the present view of the cluster. No request is on its way. Lanes to servers that serve no slots any
// more are left.
func (s *Session) adopt() {
	if s.view == nil || !s.outdated() {
		return
	}
	s.view = s.cluster.View()
	s.leaveLanes(func(at upstream.Node) bool { return s.view.Primary(string(at)) == nil })
}

// ownerOf is the server of a slot; Any: none is known.
func (s *Session) ownerOf(slot int) topology.Node { return ownerIn(s.view, slot) }

func ownerIn(v *topology.View, slot int) topology.Node {
	if node := v.Owner(slot); node != nil {
		return topology.Node(node.ID)
	}
	return topology.Any
}

// anyServer is one of the servers, if possible one that answers; Any: none is known.
func (s *Session) anyServer() topology.Node {
	list := s.cluster.View().Nodes()
	if len(list) == 0 {
		return topology.Any
	}
	first := rand.IntN(len(list))
	for i := range list {
		if at := topology.Node(list[(first+i)%len(list)].ID); !s.cluster.Silent(at) {
			return at
		}
	}
	return topology.Node(list[first].ID)
}

// noteRefusal notes that a server has refused a command for another server's sake. It returns the server that has the
// key already; Any: none is known.
func (s *Session) noteRefusal(why topology.Refusal, asked topology.Node) (asking topology.Node) {
	s.cluster.Refused(why.Reason)
	hint := s.cluster.View().Named(why, asked)
	switch {
	case hint == nil:
		return topology.Any
	case why.Reason == topology.Asking:
		return topology.Node(hint.ID)
	}
	s.cluster.Refresh(topology.Node(hint.ID), nil)
	return topology.Any
}

// Later has f called, with the session locked, after a pause and a refresh of the view. Requires the session lock.
func (s *Session) Later(hint topology.Node, pause time.Duration, f func()) {
	then := func() { s.Do(f) }
	if pause == 0 {
		s.cluster.Refresh(hint, then)
		return
	}
	time.AfterFunc(pause, func() { s.cluster.Refresh(hint, then) })
}

// home is the server for commands without a key.
func (s *Session) home() upstream.Node {
	switch {
	case !s.clustered():
		return topology.Any
	case s.lane != nil && s.lane.At() != topology.Any:
		return s.lane.At()
	}
	return s.anyServer()
}
