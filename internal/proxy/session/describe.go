package session

import (
	"time"

	"lockproxy/internal/proxy/clients"
)

// Describe is clients.Visible.
func (s *Session) Describe() (clients.Info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.described(), !s.ended
}

// described is describe. Requires the session lock.
func (s *Session) described() clients.Info {
	c := clients.Info{
		Idle: max(s.proxy.Clock.Load()-s.active, 0) / 1000,
		Name: s.name, LibName: s.lib[0], LibVer: s.lib[1], Cmd: s.cmd,
		User: clients.UserOf(s.ident.User), DB: s.ident.DB, Resp: s.ident.Proto, Multi: -1,
		Waits: s.wait == waitLock && s.slots.Due() == 0, Closes: s.closing || s.wait == waitGoodbye,
		Query: int64(s.in.Len()), QueryFree: int64(s.in.Cap() - s.in.Len()), Total: int64(s.bytes()),
		Unread: int64(s.unread), Writing: s.out.Writing(),
	}
	n, free, chunks := s.out.Sizes()
	c.Out, c.OutFree, c.Chunks = int64(n), int64(free), int64(chunks)
	s.Origin.DescribeTo(&c)
	if p := s.pin; p != nil {
		c.Conn = p.conn.ID()
		c.Redir, c.RedirConn = s.redir.Client, s.redir.Conn
		c.Subs, c.Patterns, c.Shards = p.Channels, p.Patterns, p.Shards
		c.Monitors = p.mode == readsRaw && p.reason == "monitor"
		c.Replicates = p.mode == readsRaw && !c.Monitors
		if p.InTx {
			c.Multi = p.Queued - p.Base
		}
	}
	return c
}

// KillIf is clients.Visible.
func (s *Session) KillIf(match func(*clients.Info) bool) bool {
	s.mu.Lock()
	defer s.exit()
	if c := s.described(); s.ended || !match(&c) {
		return false
	}
	s.end()
	return true
}

var _ clients.Visible = (*Session)(nil)

// Status describes one client connection for people.
type Status struct {
	ID         uint64
	Addr, Name string
	Identity   string // without its password
	Since      time.Time
	State      string // the reason of its wait; empty: it does not wait
	Pin        string // the command that made a pin necessary; empty: it has none
	Unanswered int    // commands sent to Redis whose replies have not come
	Unread     int    // bytes that the client has not taken
	Paused     bool   // it is not read at present
	SetAside   bool   // its lane stands still
}

// waitNames are the reasons of a wait for people.
var waitNames = [...]string{
	waitNone: "", waitQuiet: "replies", waitPin: "pin", waitReply: "reply", waitLock: "lock", waitList: "list", waitDoor: "admission", waitGoodbye: "closing",
}

// Status describes the client.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Status{
		ID: s.ID, Addr: s.Addr, Name: s.name, Identity: s.ident.String(), Since: s.Since,
		State: waitNames[s.wait], Unanswered: s.slots.Due(), Unread: s.unread, Paused: s.paused,
		SetAside: s.lane != nil && s.lane.Unsettled(),
	}
	if s.pin != nil {
		c.Pin = s.pin.reason
	}
	return c
}
