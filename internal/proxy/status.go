package proxy

import (
	"cmp"
	"context"
	"slices"
	"time"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/proxy/status"
)

// ClientStatus is one client connection, for people.
type ClientStatus struct {
	ID         uint64
	Addr, Name string
	Identity   string // without its password
	Since      time.Time
	State      string // what it waits for; empty: nothing
	Pin        string // the command that made a pin necessary; empty: it has none
	Unanswered int    // commands sent to Redis whose replies have not come
	Unread     int    // bytes that the client has not taken
}

// waitNames say for people why a session does not go on.
var waitNames = [...]string{
	waitNone: "", waitQuiet: "replies", waitPin: "pin", waitReply: "reply", waitLock: "lock", waitList: "list", waitDoor: "admission", waitGoodbye: "closing",
}

// Clients lists the clients in the order in which they came, at most n. Those that have not sent a command are not known
// yet.
func (srv *Server) Clients(n int) []ClientStatus {
	var all []*Session
	for _, l := range srv.env.clients.All() {
		if s, ok := l.(*Session); ok {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(a.id, b.id) })
	var list []ClientStatus
	for _, s := range all[:min(n, len(all))] {
		list = append(list, s.status())
	}
	return list
}

func (s *Session) status() ClientStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := ClientStatus{
		ID: s.id, Addr: s.addr, Name: s.name, Identity: s.ident.String(), Since: s.since,
		State: waitNames[s.wait], Unanswered: s.slots.Due(), Unread: s.unread,
	}
	if s.pin != nil {
		c.Pin = s.pin.reason
	}
	return c
}

// Stats reads the counters, one after the other.
func (srv *Server) Stats() status.Stats { return srv.env.source.Stats() }

// LockStatus is one lock that clients of this proxy hold, for people.
type LockStatus = lockcmds.Held

// Locks lists the locks that clients of this proxy hold, by key, at most n.
func (srv *Server) Locks(n int) []LockStatus {
	list := srv.env.locks.List(n)
	slices.SortStableFunc(list, func(a, b LockStatus) int { return cmp.Compare(a.Key, b.Key) })
	return list[:min(n, len(list))]
}

// LaneStatus is one connection to Redis that clients share, for people.
type LaneStatus struct {
	Identity string // without its password
	Clients  int
}

// Lanes lists the lanes by identity.
func (srv *Server) Lanes() []LaneStatus {
	var list []LaneStatus
	for _, l := range srv.env.upstream.Lanes() {
		list = append(list, LaneStatus{Identity: l.Identity.String(), Clients: l.Users})
	}
	slices.SortFunc(list, func(a, b LaneStatus) int { return cmp.Compare(a.Identity, b.Identity) })
	return list
}

// Probe asks Redis, on a connection of its own, whether it serves.
func (srv *Server) Probe(ctx context.Context) error { return srv.env.upstream.Probe(ctx) }

// Draining reports whether the server has stopped accepting clients.
func (srv *Server) Draining() bool {
	select {
	case <-srv.stop:
		return true
	default:
		return false
	}
}
