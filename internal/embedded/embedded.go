// Package embedded runs a Redis inside this process, for first steps without a redis-server. It is miniredis, with
// TTLs that run by themselves; all data is gone with the process.
//
//	clients ──TCP──► miniredis ◄── FastForward(time since the last step) ── age, every 10 to 100 ms
//
// miniredis keeps a remaining time per key and shortens it only when told to. A key that is set between two steps pays
// for the whole interval, so it ends up to 10 ms early, and up to 200 ms if there are very many keys or the machine is
// busy.
//
// Goroutines: Start starts age, Close waits for it and for the connections' goroutines, which are miniredis' own.
//
// It lacks these commands of a real Redis that clients and tools send:
//   - inline commands (lockproxy turns them into arrays before they get here)
//   - COMMAND: miniredis answers with a fixed table of Redis 5, whatever the subcommand; redis-cli aborts on that as
//     the answer to COMMAND DOCS. It is refused here, so that clients do without it.
//   - CONFIG: only GET, of the few settings that redis-benchmark and lockproxy look at; it is not queued by MULTI
//   - CLIENT ID, KILL, LIST, TRACKING and all others but SETNAME and GETNAME
//   - OBJECT ENCODING, INFO sections other than clients and stats, functions, sharded pub/sub, MONITOR, ACL,
//     DEBUG, LATENCY, SLOWLOG, replication, persistence, eviction
package embedded

import (
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// A step walks over all keys. The pause behind it is restPerCost times as long, within these bounds.
const (
	restPerCost = 20
	leastRest   = 10 * time.Millisecond
	mostRest    = 100 * time.Millisecond
)

// mostStep bounds what a key pays for a time before it was set. A process that was stopped for longer keeps all keys
// longer.
const mostStep = 2 * mostRest

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
	redis *miniredis.Miniredis // immutable
	addr  string               // immutable
	close sync.Once
	stop  chan struct{} // closed by Close
	aging sync.WaitGroup
}

// Start listens on a free port of the loopback interface, and serves until Close.
func Start() (*Server, error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	s := &Server{redis: m, addr: m.Addr(), stop: make(chan struct{})}
	if err := m.Server().Register("CONFIG", config); err != nil {
		m.Close()
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	m.Server().SetPreHook(new(hook).before)
	s.aging.Go(s.age)
	return s, nil
}

// Addr is the address clients connect to, host:port.
func (s *Server) Addr() string { return s.addr }

// Close ends all connections and returns when every goroutine has ended. It may be called more than once.
func (s *Server) Close() {
	s.close.Do(func() {
		close(s.stop)
		s.aging.Wait()
		s.redis.Close()
	})
}

// age shortens the TTLs of all keys by the time that has passed, on the monotonic clock.
func (s *Server) age() {
	last, rest := time.Now(), leastRest
	for {
		select {
		case <-time.After(rest):
		case <-s.stop:
			return
		}
		now := time.Now()
		s.redis.FastForward(min(now.Sub(last), mostStep))
		last, rest = now, min(max(restPerCost*time.Since(now), leastRest), mostRest)
	}
}

// hook has the RESP3 connections that have subscribed.
type hook struct{ subscribers sync.Map }

// before runs ahead of every command. It reports whether it has answered. miniredis answers the PING of a subscriber in
// RESP3 as if it spoke RESP2, and the lock engine's library sends one behind each UNSUBSCRIBE.
func (h *hook) before(c *server.Peer, cmd string, args ...string) bool {
	switch cmd {
	case "COMMAND":
		c.WriteError("ERR unknown command 'COMMAND', the embedded redis has no table of its commands")
		return true
	case "SUBSCRIBE", "PSUBSCRIBE":
		if _, known := h.subscribers.LoadOrStore(c, nil); !known {
			c.OnDisconnect(func() { h.subscribers.Delete(c) })
		}
	case "PING":
		if _, subscribed := h.subscribers.Load(c); subscribed && c.Resp3 && len(args) == 0 {
			c.WriteInline("PONG")
			return true
		}
	}
	return false
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
