// Package locktest is for tests only. It has the double of a session as the lock commands see it (package contract),
// the check that a session keeps that contract, and a world without I/O for parts of the lock engine.
package locktest

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Engine is what a session sends its commands to: a lock engine.
type Engine interface {
	Start(s contract.Caller, c grammar.Command)
	Ended(session uint64)
	Forsaken(session uint64) int
}

// Session is a client connection without a socket: commands in, replies out, and a lane of its own to a real Redis.
type Session struct {
	ID      uint64
	Proto   int
	Lane    *Lane
	Lost    *contract.Losses
	Replies chan string // every reply, printed
	Pushes  chan string

	t      testing.TB
	engine Engine

	mu      sync.Mutex
	later   []func()
	ended   bool
	busy    bool
	pending int // scripts on their way
	todo    []grammar.Command
}

// New returns a session of an engine.
func New(t testing.TB, engine Engine, id uint64, proto int, lane *Lane) *Session {
	return &Session{
		ID: id, Proto: proto, Lane: lane, Lost: &contract.Losses{},
		Replies: make(chan string, 1000), Pushes: make(chan string, 1000), t: t, engine: engine,
	}
}

// Caller is the session with the facts about its client. Requires the session lock.
func (s *Session) Caller() contract.Caller {
	return contract.Caller{
		Session: s, ID: s.ID, Token: fmt.Sprintf("%012d", s.ID), Losses: s.Lost,
		Info:  contract.ClientInfo{Addr: fmt.Sprintf("10.0.0.%d:1", s.ID), Name: "test"},
		Proto: s.Proto, NothingPending: s.pending == 0,
	}
}

// Lock locks the session.
func (s *Session) Lock() { s.mu.Lock() }

// Unlock unlocks the session, and then runs the functions of AfterUnlock.
func (s *Session) Unlock() {
	later := s.later
	s.later = nil
	s.mu.Unlock()
	for _, f := range later {
		f()
	}
}

// Do implements contract.Session.
func (s *Session) Do(f func()) bool {
	s.Lock()
	defer s.Unlock()
	if s.ended {
		return false
	}
	f()
	return true
}

// AfterUnlock implements contract.Session.
func (s *Session) AfterUnlock(f func()) { s.later = append(s.later, f) }

// Script implements contract.Session.
func (s *Session) Script(c contract.Call) {
	s.pending++
	s.Lane.send(c, func(reply resp.Value, err error) {
		s.Lock()
		defer s.Unlock()
		s.pending--
		out := c.For.Done(reply, err)
		switch {
		case s.ended:
		case out != nil:
			s.Reply(out)
		}
	})
}

// Reply implements contract.Session.
func (s *Session) Reply(reply []byte) {
	if reply == nil {
		s.t.Error("no reply")
	}
	s.Replies <- Show(reply)
	if bytes.Equal(reply, contract.Unanswered) {
		s.ended = true
		s.engine.Forsaken(s.ID)
		s.Lane.Close()
		return
	}
	s.next()
}

// OnBehind implements contract.Session. Nothing comes behind an acquire.
func (s *Session) OnBehind(string, func()) {}

// Push implements contract.Session.
func (s *Session) Push(b []byte) {
	if s.Proto == 3 {
		s.Pushes <- Show(b)
	}
}

// next starts the next command. Requires the session lock.
func (s *Session) next() {
	s.busy = len(s.todo) > 0
	if s.busy {
		c := s.todo[0]
		s.todo = s.todo[1:]
		s.engine.Start(s.Caller(), c)
	}
}

// Send starts a command, behind those sent before.
func (s *Session) Send(line string) {
	s.t.Helper()
	c, err := grammar.Parse(Words(line))
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	s.Lock()
	defer s.Unlock()
	s.todo = append(s.todo, c)
	if !s.busy {
		s.next()
	}
}

// Words splits a command into its arguments; ” is an empty one.
func Words(line string) [][]byte {
	var args [][]byte
	for w := range strings.SplitSeq(line, " ") {
		if w == "''" {
			w = ""
		}
		args = append(args, []byte(w))
	}
	return args
}

// Next is the next reply. The test fails if there is none within the limit.
func (s *Session) Next(limit time.Duration) string {
	s.t.Helper()
	return s.receive("reply", s.Replies, limit)
}

// NextPush is the next push. The test fails if there is none within the limit.
func (s *Session) NextPush(limit time.Duration) string {
	s.t.Helper()
	return s.receive("push", s.Pushes, limit)
}

func (s *Session) receive(what string, from chan string, limit time.Duration) string {
	s.t.Helper()
	select {
	case r := <-from:
		return r
	case <-time.After(limit):
		s.t.Fatalf("session %d: no %s", s.ID, what)
		return ""
	}
}

// Quiet fails the test if there is a reply within d.
func (s *Session) Quiet(d time.Duration) {
	s.t.Helper()
	select {
	case r := <-s.Replies:
		s.t.Fatalf("session %d: unexpected reply %s", s.ID, r)
	case <-time.After(d):
	}
}

// End marks the session as ended, and tells the engine. Requires the session lock.
func (s *Session) End() {
	if !s.ended {
		s.ended = true
		s.engine.Ended(s.ID)
	}
}

// Pending is how many scripts are on their way. Requires the session lock.
func (s *Session) Pending() int { return s.pending }

// HangUp ends the session and its lane.
func (s *Session) HangUp() {
	s.Lock()
	defer s.Unlock()
	if !s.ended {
		s.End()
		s.Lane.Close()
	}
}

// Show prints a reply: "+text", ":7", "-ERR text", "(nil)", "[a b]"; "unreachable"; "closed": contract.Unanswered.
func Show(b []byte) string {
	switch {
	case len(b) == 0:
		return "unreachable"
	case bytes.Equal(b, contract.Unanswered):
		return "closed"
	}
	v, n, err := resp.Decode(b)
	if err != nil || n != len(b) {
		return fmt.Sprintf("malformed %q: %v", b, err)
	}
	return showValue(v)
}

func showValue(v resp.Value) string {
	switch {
	case v.Null:
		return "(nil)"
	case v.IsError():
		return "-" + string(v.Str)
	case v.Kind == resp.Integer:
		return fmt.Sprintf(":%d", v.Int)
	case v.Kind == resp.Array || v.Kind == resp.Map || v.Kind == resp.Push:
		var parts []string
		for _, e := range v.Elems {
			parts = append(parts, showValue(e))
		}
		return string(rune(v.Kind)) + "[" + strings.Join(parts, " ") + "]"
	}
	return string(v.Str)
}
