package proxy

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
)

// ClientStatus describes one client connection for people.
type ClientStatus = session.Status

// EachClient calls f for all clients, in the order of their ids. Clients that have not sent a command are left out. Not
// for an event loop.
func (srv *Server) EachClient(f func(ClientStatus)) {
	for l := range srv.shared.Clients.Each(nil) {
		if s, ok := l.(*session.Session); ok {
			f(s.Status())
		}
	}
}

// Stats reads the counters, one after the other.
func (srv *Server) Stats() metrics.Stats { return srv.shared.Stats() }

// LockStatus describes one lock that clients of this proxy hold, for people.
type LockStatus = lockcmds.Hold

// Locks lists the locks that clients of this proxy hold, by key, at most n.
func (srv *Server) Locks(n int) []LockStatus {
	list := srv.shared.Locks.List(n)
	slices.SortStableFunc(list, func(a, b LockStatus) int { return cmp.Compare(a.Key, b.Key) })
	return list[:min(n, len(list))]
}

// SeenLock describes one lock that clients of this proxy hold or wait for, for people.
type SeenLock = lockcmds.Lock

// EachLock calls f for the locks that clients of this proxy hold or wait for, in no order. Not for an event loop.
func (srv *Server) EachLock(f func(SeenLock)) { srv.shared.Locks.Each(f) }

// HotLock is a lock for which clients of this proxy have waited.
type HotLock = lockcmds.HotLock

// HotLocks are the locks for which clients of all users have waited longest in the last one to two hours, the longest
// first, at most n.
func (srv *Server) HotLocks(n int) []HotLock { return srv.shared.Locks.HotLocks(n, nil) }

// Probe asks Redis, on a connection of its own, whether it serves.
func (srv *Server) Probe(ctx context.Context) error { return srv.shared.Upstream.Probe(ctx) }

// Draining reports whether the server is about to stop. It may still accept clients: see Stopped.
func (srv *Server) Draining() bool { return srv.closing.Load() }

// Stopped is closed when the server accepts no more clients.
func (srv *Server) Stopped() <-chan struct{} { return srv.stop }

// Shared is what the sessions share. Tests of the whole proxy wait for states in it that no client sees.
func (srv *Server) Shared() *session.Proxy { return srv.shared }
