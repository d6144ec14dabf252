// Package embedded runs a Redis inside this process, for first steps without a redis-server. It is miniredis, with
// TTLs that run by themselves; all data is gone with the process.
//
//	clients ──TCP──► miniredis ──before each command──► aging.step ──► FastForward(time since the last step)
//	                                                        ▲
//	                             tick, every 10 ms ─────────┘
//
// miniredis keeps a remaining time per key and shortens it only when told to. The ticker makes keys vanish while no
// command comes. The ticker alone would end a lease up to 10 ms early, because a key set between two ticks pays for the
// whole interval; so a step is also made before each command, as long as that is cheap (a step costs a walk over all
// keys).
//
// Goroutines: Start starts tick, Close waits for it and for the connections' goroutines, which are miniredis' own.
//
// It lacks these commands of a real Redis that clients and tools send:
//   - inline commands (lockproxy turns them into arrays before they get here)
//   - COMMAND: miniredis answers with a fixed table of Redis 5, whatever the subcommand; redis-cli aborts on that as
//     the answer to COMMAND DOCS. It is refused here, so that clients do without it. Only COMMAND DOCS without names is
//     answered, in RESP2, because redis-cli hints by it.
//   - CONFIG: only GET, of the few settings that redis-benchmark and lockproxy look at; it is not queued by MULTI
//   - CLIENT ID, KILL, LIST, TRACKING and all others but SETNAME and GETNAME
//   - OBJECT ENCODING, INFO sections other than clients and stats, functions, sharded pub/sub, MONITOR, ACL,
//     DEBUG, LATENCY, SLOWLOG, replication, persistence, eviction
//   - EXPIRE and its kind measure from the latest step, which a large number of keys can put off by up to 100 ms
package embedded

import (
	"bufio"
	"bytes"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

const tickEvery = 10 * time.Millisecond

// settings are the answers to CONFIG GET. They are true for this server. redis-benchmark prints save and appendonly,
// and warns if it cannot. lockproxy warns if maxmemory-policy could evict locks.
var settings = [][2]string{
	{"appendonly", "no"},
	{"databases", "16"},
	{"maxmemory", "0"},
	{"maxmemory-policy", "noeviction"},
	{"save", ""},
}

// Server is a running in-process Redis.
type Server struct {
	redis  *miniredis.Miniredis // immutable
	addr   string               // immutable
	aging  aging
	inner  sync.Map // the *server.Peer that catch replies
	close  sync.Once
	closed chan struct{} // closed by Close
	ticked chan struct{} // closed by tick at its end
}

// Start listens on a free port of the loopback interface, and serves until Close.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	s := &Server{
		redis: m, addr: m.Addr(), aging: aging{redis: m, last: time.Now()},
		closed: make(chan struct{}), ticked: make(chan struct{}),
	}
	if err := m.Server().Register("CONFIG", config); err != nil {
		m.Close()
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	m.Server().SetPreHook(s.before)
	go s.tick()
	return s, nil
}

// Addr is the address clients connect to, host:port.
func (s *Server) Addr() string { return s.addr }

// Close ends all connections and returns when every goroutine has ended. It may be called more than once.
func (s *Server) Close() {
	s.close.Do(func() {
		close(s.closed)
		<-s.ticked
		s.redis.Close()
	})
}

func (s *Server) tick() {
	defer close(s.ticked)
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.aging.step()
		case <-s.closed:
			return
		}
	}
}

// before runs ahead of every command, also of those that a script calls. It reports whether it has answered.
func (s *Server) before(c *server.Peer, cmd string, args ...string) bool {
	s.aging.step()
	switch cmd {
	case "COMMAND":
		if len(args) == 1 && strings.EqualFold(args[0], "docs") && !c.Resp3 {
			c.WriteRaw(docs())
		} else {
			c.WriteError("ERR unknown command 'COMMAND', the embedded redis has no table of its commands")
		}
		return true
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
		return s.script(c, cmd, args)
	case "PING":
		return s.ping(c, args)
	}
	return false
}

// ping answers a RESP3 client that has subscriptions as any other client. miniredis answers it as if it spoke RESP2.
func (s *Server) ping(c *server.Peer, args []string) bool {
	if _, inner := s.inner.Load(c); inner || !c.Resp3 {
		return false
	}
	reply := s.caught(c, "PING", args)
	if text, subscribed := strings.CutPrefix(reply, "*2\r\n$4\r\npong\r\n"); subscribed {
		if reply = text; len(args) == 0 {
			reply = "+PONG\r\n"
		}
	}
	c.WriteRaw(reply)
	return true
}

// caught carries out a command of the client, and returns the reply instead of sending it.
func (s *Server) caught(c *server.Peer, cmd string, args []string) string {
	var reply bytes.Buffer
	catch := server.NewPeer(bufio.NewWriter(&reply))
	catch.Ctx, catch.Resp3, catch.ClientName = c.Ctx, c.Resp3, c.ClientName
	s.inner.Store(catch, nil)
	s.redis.Server().Dispatch(catch, append([]string{cmd}, args...))
	s.inner.Delete(catch)
	catch.Flush()
	c.Ctx = catch.Ctx
	return reply.String()
}

// config answers CONFIG GET pattern... from settings.
func config(c *server.Peer, _ string, args []string) {
	switch {
	case len(args) == 0:
		c.WriteError("ERR wrong number of arguments for 'config' command")
		return
	case !strings.EqualFold(args[0], "GET"):
		c.WriteError(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try CONFIG HELP.", args[0]))
		return
	case len(args) == 1:
		c.WriteError("ERR wrong number of arguments for 'config|get' command")
		return
	}
	var found [][2]string
	for _, setting := range settings {
		for _, pattern := range args[1:] {
			if ok, err := path.Match(strings.ToLower(pattern), setting[0]); err == nil && ok {
				found = append(found, setting)
				break
			}
		}
	}
	c.Block(func(w *server.Writer) {
		w.WriteMapLen(len(found))
		for _, setting := range found {
			w.WriteBulk(setting[0])
			w.WriteBulk(setting[1])
		}
	})
}
