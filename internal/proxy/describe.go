package proxy

import (
	"time"

	"lockproxy/internal/proxy/clients"
)

// visible is a connected client as other clients see it. Its methods may be called from any goroutine that holds no session's lock.
type visible interface {
	// describe says what CLIENT LIST shows. false: the client has gone.
	describe() (clients.Info, bool)

	// killIf ends the client if match is true for it, and reports that.
	killIf(match func(*clients.Info) bool) bool
}

// describe is visible: a client that has not sent a command yet.
func (a *arrival) describe() (clients.Info, bool) {
	a.mu.Lock()
	from, killed := a.origin, a.killed
	a.mu.Unlock()
	first := a.server.env.firstIdentity()
	c := clients.Info{User: userOf(first.User), Resp: first.Proto, DB: first.DB, Multi: -1}
	from.describe(&c)
	c.Idle = c.Age
	return c, !killed
}

func (a *arrival) killIf(match func(*clients.Info) bool) bool {
	c, here := a.describe()
	if !here || !match(&c) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.killed {
		return false
	}
	a.killed = true
	a.server.env.clients.Remove(a.id)
	_ = a.Conn.Close() // redcon sees that
	return true
}

func (o *origin) describe(c *clients.Info) {
	c.ID, c.Addr, c.LAddr, c.Unix, c.FD = o.id, o.addr, o.laddr, o.unix, o.fd
	c.Age = int64(time.Since(o.since) / time.Second)
}

// userOf is the name of the user that a connection has, whether or not it has authenticated.
func userOf(user string) string {
	if user == "" {
		return "default"
	}
	return user
}

func (s *Session) describe() (clients.Info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.described(), !s.ended
}

// described is describe with the session locked.
func (s *Session) described() clients.Info {
	c := clients.Info{
		Idle: max(s.env.clock.Load()-s.heard, 0) / 1000,
		Name: s.name, LibName: s.lib[0], LibVer: s.lib[1], Cmd: s.cmd,
		User: userOf(s.ident.User), DB: s.ident.DB, Resp: s.ident.Proto, Multi: -1,
		Waits: s.wait == waitLock && s.slots.Due() == 0, Closes: s.closing || s.wait == waitGoodbye,
		Query: int64(s.in.Len()), QueryFree: int64(s.in.Cap() - s.in.Len()), Total: int64(s.bytes()),
		Out: int64(len(s.out)), OutFree: int64(cap(s.out) - len(s.out) + cap(s.spare)), Chunks: int64(len(s.full)),
		Unread: int64(s.unread), Writing: s.writing,
	}
	s.origin.describe(&c)
	if p := s.pin; p != nil {
		c.Conn = p.conn.ID()
		c.Redir, c.RedirConn = s.redir.client, s.redir.conn
		c.Subs, c.Patterns, c.Shards = p.channels, p.patterns, p.shards
		c.Monitors = p.mode == readsRaw && p.reason == "monitor"
		c.Replicates = p.mode == readsRaw && !c.Monitors
		if p.inTx {
			c.Multi = p.queued - p.base
		}
	}
	return c
}

func (s *Session) killIf(match func(*clients.Info) bool) bool {
	s.mu.Lock()
	defer s.exit()
	if c := s.described(); s.ended || !match(&c) {
		return false
	}
	s.end()
	return true
}

var (
	_ visible = (*arrival)(nil)
	_ visible = (*Session)(nil)
)

// connected describes all clients. It may take a while and is not for event loops.
func (e *env) connected() []clients.Info {
	all := e.clients.All()
	list := make([]clients.Info, 0, len(all))
	for i, l := range all {
		clients.Yield(i)
		if c, ok := l.describe(); ok {
			list = append(list, c)
		}
	}
	return list
}

// counts are what INFO is to count of clients.
func (e *env) counts() clients.Counts {
	return clients.Counts{
		Clients: e.clients.Len(), Connections: e.upstream.Connections().Count(), Waiting: e.locks.Waiting() + e.upstream.HeldBack(),
	}
}
