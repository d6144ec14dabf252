package proxy

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/proxy/status"
)

// ClientStatus describes one client connection for people.
type ClientStatus = session.Status

// Clients lists at most n clients in the order of their arrival. Clients that have not sent a command are left out.
func (srv *Server) Clients(n int) []ClientStatus {
	var all []*session.Session
	for _, l := range srv.shared.Clients.All() {
		if s, ok := l.(*session.Session); ok {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b *session.Session) int { return cmp.Compare(a.ID, b.ID) })
	var list []ClientStatus
	for _, s := range all[:min(n, len(all))] {
		list = append(list, s.Status())
	}
	return list
}

// Stats reads the counters, one after the other.
func (srv *Server) Stats() status.Stats { return srv.shared.Numbers.Stats() }

// LockStatus describes one lock that clients of this proxy hold, for people.
type LockStatus = lockcmds.Held

// Locks lists the locks that clients of this proxy hold, by key, at most n.
func (srv *Server) Locks(n int) []LockStatus {
	list := srv.shared.Locks.List(n)
	slices.SortStableFunc(list, func(a, b LockStatus) int { return cmp.Compare(a.Key, b.Key) })
	return list[:min(n, len(list))]
}

// LaneStatus describes one connection to Redis that clients share, for people.
type LaneStatus struct {
	Identity string // without its password
	Clients  int
}

// Lanes lists the lanes by identity.
func (srv *Server) Lanes() []LaneStatus {
	var list []LaneStatus
	for _, l := range srv.shared.Upstream.Lanes() {
		list = append(list, LaneStatus{Identity: l.Identity.String(), Clients: l.Users})
	}
	slices.SortFunc(list, func(a, b LaneStatus) int { return cmp.Compare(a.Identity, b.Identity) })
	return list
}

// Probe asks Redis, on a connection of its own, whether it serves.
func (srv *Server) Probe(ctx context.Context) error { return srv.shared.Upstream.Probe(ctx) }

// Draining reports whether the server has stopped accepting clients.
func (srv *Server) Draining() bool {
	select {
	case <-srv.stop:
		return true
	default:
		return false
	}
}
