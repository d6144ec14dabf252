package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
)

// Describe implements clients.Visible.
func (s *Session) Describe() (clients.Info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.described(), s.life < ended
}

// described is Describe for a caller that has the lock. Requires the session lock.
func (s *Session) described() clients.Info {
	c := clients.Info{
		Idle: max(s.proxy.Clock.Load()-s.active, 0) / 1000,
		Name: s.name, LibName: s.lib[0], LibVer: s.lib[1], Cmd: s.cmd,
		User: clients.UserOf(s.ident.User), Stranger: !s.ident.Authenticated(), DB: s.ident.DB, Resp: s.ident.Proto, Multi: -1,
		Closes: s.over(),
		Query:  int64(s.in.len()), QueryFree: int64(s.in.cap() - s.in.len()), Total: int64(s.bytes()),
		Unread: int64(s.out.Unread()), Writing: s.out.Outbox.Writing(),
	}
	c.Waits = s.waitsForLock() || s.pin != nil && s.pin.waits && s.pin.conn.Connected()
	n, free, chunks := s.out.Outbox.Sizes()
	c.Out, c.OutFree, c.Chunks = int64(n), int64(free), int64(chunks)
	s.Origin.DescribeTo(&c)
	if p := s.pin; p != nil {
		c.Conn, c.Redir = p.number(), s.redir
		c.Subs, c.Patterns, c.Shards = p.Channels, p.Patterns, p.Shards
		c.Monitors = p.mode == readsRaw && p.reason == "monitor"
		c.Replicates = p.mode == readsRaw && !c.Monitors
		if p.tx.inTx {
			c.Multi = p.tx.queued - p.tx.base
		}
	}
	return c
}

// KillIf implements clients.Visible.
func (s *Session) KillIf(match func(*clients.Info) bool) {
	s.mu.Lock()
	defer s.exit()
	if c := s.described(); s.life < ended && match(&c) {
		s.end()
	}
}

var _ clients.Visible = (*Session)(nil)

// Status describes one client connection for people.
type Status struct {
	ID         uint64
	Addr, Name string
	Identity   string // without its password
	Since      time.Time
	State      string    // the reason of its wait; empty: it does not wait
	Lock       string    // for which it waits; empty: for none
	Asked      time.Time // when it asked for Lock
	Pin        string    // the command that made a pin necessary; empty: it has none
	Unanswered int       // commands sent to Redis whose replies have not come
	Unread     int       // bytes that the client has not taken
	Paused     bool      // it is not read at present
	SetAside   bool      // its lane stands still
}

// waitNames are the reasons of a wait for people.
var waitNames = [...]string{
	waitNone: "", waitTurn: "turn", waitTaken: "client", waitQuiet: "replies", waitPin: "pin",
	waitReply: "reply", waitLock: "lock", waitEngine: "engine",
}

// Status describes the client.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Status{
		ID: s.ID, Addr: s.Addr, Name: s.name, Identity: s.ident.String(), Since: s.Since,
		State: waitNames[s.wait], Unanswered: s.out.Slots.Due(), Unread: s.out.Unread(), Paused: s.paused,
		SetAside: s.lane != nil && s.lane.Unsettled(),
	}
	if s.over() {
		c.State = "closing"
	}
	if s.pin != nil {
		c.Pin = s.pin.reason
	}
	if s.wait == waitLock {
		for _, e := range s.engines {
			if lock, since, ok := e.WaitsFor(s.ID); ok {
				c.Lock, c.Asked = lock, since
			}
		}
	}
	return c
}
