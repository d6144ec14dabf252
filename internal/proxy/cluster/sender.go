package cluster

import (
	"math/rand/v2"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Servers are those of a cluster, as package upstream knows them, or a test without servers.
type Servers interface {
	// View is the present view.
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

// A Host is the session whose commands a Sender brings to the servers.
type Host interface {
	reply.Session

	// Expect takes a place for the reply to a command that is sent to a server now. Forget drops it.
	Expect(row *command.Row, at topology.Node, h reply.Handler) reply.ID
	Forget(place reply.ID)

	// Lane is the lane to a server; nil: no server is known. TurnTo makes it the present one. LeaveLanes leaves lanes on
	// which nothing is outstanding.
	Lane(row *command.Row, at topology.Node) *upstream.Lane
	TurnTo(at topology.Node)
	LeaveLanes(which func(at topology.Node) bool)

	// Transmit sends n commands, whose replies have a place, by a lane. Unsent says that there was none.
	Transmit(by *upstream.Lane, raw []byte, place reply.ID, n int)
	Unsent(place reply.ID)

	// Pause has the session read nothing new until all replies are in.
	Pause()

	// Hopeful reports whether a command that could not be sent may be sent later. Endures reports whether it waits for
	// that longer than the time for refusals.
	Hopeful() bool
	Endures() bool

	// Abandon closes the connection of the client: a command may have run. GiveUp does because Redis cannot be reached.
	Abandon()
	GiveUp()

	// Do runs f with the session locked, unless the client gets no more. It is called without the lock.
	Do(f func()) bool
}

// A Sender has the view by which the commands of a session are placed, and those that are on their way. Its zero value
// needs a Host, Servers, and their view.
type Sender struct {
	Host    Host
	Servers Servers
	View    *topology.View

	sending int       // parcels that are on their way
	pause   *pause    // parcels were refused; nil: none has been that is not answered
	spare   []*Parcel // answered ones
	bytes   int       // of the parcels that are not answered: they may have to be sent again
}

// Bytes is the size of what is not answered.
func (s *Sender) Bytes() int { return s.bytes }

// Pauses reports whether refused parcels are not answered.
func (s *Sender) Pauses() bool { return s.pause != nil }

// Sending is the number of parcels that are on their way.
func (s *Sender) Sending() int { return s.sending }

// Outdated reports whether there is a newer view. It is adopted when nothing is on its way: otherwise a command could
// overtake one that the old owner of its slot refuses.
func (s *Sender) Outdated() bool { return s.View != s.Servers.View() }

// Adopt takes over the present view of the cluster. No parcel is on its way. Lanes to servers that serve no slots any
// more are left.
func (s *Sender) Adopt() {
	if !s.Outdated() {
		return
	}
	s.View = s.Servers.View()
	s.Host.LeaveLanes(func(at topology.Node) bool { return s.View.Primary(string(at)) == nil })
}

// OwnerOf is the server of a slot; Any: none is known.
func (s *Sender) OwnerOf(slot int) topology.Node { return OwnerIn(s.View, slot) }

// OwnerIn is the server of a slot in a view; Any: none is known.
func OwnerIn(v *topology.View, slot int) topology.Node {
	if node := v.Owner(slot); node != nil {
		return topology.Node(node.ID)
	}
	return topology.Any
}

// AnyServer is one of the servers, if possible one that answers; Any: none is known.
func (s *Sender) AnyServer() topology.Node {
	list := s.Servers.View().Nodes()
	if len(list) == 0 {
		return topology.Any
	}
	first := rand.IntN(len(list))
	for i := range list {
		if at := topology.Node(list[(first+i)%len(list)].ID); !s.Servers.Silent(at) {
			return at
		}
	}
	return topology.Node(list[first].ID)
}

// NoteRefusal notes that a server has refused a command for another server's sake. It returns the server that has the
// key already; Any: none is known.
func (s *Sender) NoteRefusal(why topology.Refusal, asked topology.Node) (asking topology.Node) {
	s.Servers.Refused(why.Reason)
	hint := s.Servers.View().Named(why, asked)
	switch {
	case hint == nil:
		return topology.Any
	case why.Reason == topology.Asking:
		return topology.Node(hint.ID)
	}
	s.Servers.Refresh(topology.Node(hint.ID), nil)
	return topology.Any
}

// Later has f called, with the session locked, after a pause and a refresh of the view.
func (s *Sender) Later(hint topology.Node, pause time.Duration, f func()) {
	then := func() { s.Host.Do(f) }
	if pause == 0 {
		s.Servers.Refresh(hint, then)
		return
	}
	time.AfterFunc(pause, func() { s.Servers.Refresh(hint, then) })
}

// Parcel begins a parcel for a command, whose bytes it takes over.
func (s *Sender) Parcel(row *command.Row, raw []byte, to command.Aim) *Parcel {
	p := s.empty()
	p.row, p.raw, p.Aim = row, raw, to
	return p
}

// Copied is Parcel for a command whose bytes belong to others.
func (s *Sender) Copied(row *command.Row, raw []byte, to command.Aim) *Parcel {
	p := s.empty()
	p.own = append(p.own[:0], raw...)
	p.row, p.raw, p.Aim = row, p.own, to
	return p
}

func (s *Sender) empty() (p *Parcel) {
	if last := len(s.spare) - 1; last >= 0 {
		p, s.spare = s.spare[last], s.spare[:last]
		return p
	}
	return &Parcel{s: s}
}

// maxSpare bounds the parcels that an idle session keeps, and the bytes that each keeps.
const maxSpare, maxSpareRaw = 32, 512

// A Batch makes parcels that would not all be kept.
type Batch struct {
	s    *Sender
	more []Parcel
}

// Batch is for n parcels.
func (s *Sender) Batch(n int) Batch { return Batch{s, make([]Parcel, max(0, n-maxSpare))} }

// Parcel is that of the Sender.
func (b *Batch) Parcel(row *command.Row, raw []byte, to command.Aim) *Parcel {
	if len(b.more) == 0 {
		return b.s.Parcel(row, raw, to)
	}
	p := &b.more[0]
	b.more = b.more[1:]
	*p = Parcel{s: b.s, row: row, raw: raw, Aim: to, once: true}
	return p
}
