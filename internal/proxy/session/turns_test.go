package session

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// There may be millions of commands behind one that waits, or in one read. The commands of other clients do not stand
// behind all of them.
func TestATurnEndsWhenManyRepliesAreDue(t *testing.T) {
	s, h := byHand(t, Limits{})
	feed(t, s, strings.Repeat("PING\r\n", 8*mostDue)+"PING")
	for range 4 {
		due, held := s.out.Slots.Due(), s.in.len()
		if due == 0 || due > mostDue || s.wait != waitTurn {
			t.Fatalf("%d replies are due, the session waits for %v", due, s.wait)
		}
		h.replies(t, strings.Repeat("+PONG\r\n", due-due/2-1))
		if s.in.len() != held {
			t.Fatalf("the next turn has begun with %d replies due", s.out.Slots.Due())
		}
		h.replies(t, "+PONG\r\n")
		if s.in.len() >= held {
			t.Fatalf("the next turn has not begun with %d replies due", s.out.Slots.Due())
		}
	}
}

// A turn ends after a time also if no reply is due. The next one waits for no reply.
func TestATurnWithoutRepliesEndsAfterATime(t *testing.T) {
	const many = 1 << 20
	for title, command := range map[string]string{"without a reply": "", "refused at once": "LOCK"} {
		t.Run(title, func(t *testing.T) {
			s, h := byHand(t, Limits{})
			ended := make(chan struct{})
			h.flushed = sync.OnceFunc(func() { close(ended) })
			n := many / (len(command) + 1)
			all := strings.Repeat(command+"\r\n", n)
			s.mu.Lock()
			s.in.append([]byte(all), 0)
			s.advance()
			taken, waits := len(all)-s.in.len(), s.wait
			s.unlock()
			if taken == 0 || taken == len(all) || waits != waitTurn {
				t.Fatalf("%d bytes of %d are taken, the session waits for %v", taken, len(all), waits)
			}
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the next turn does not begin")
			}
			s.mu.Lock()
			defer s.unlock()
			if left := s.in.len(); left >= len(all)-taken {
				t.Errorf("%d bytes are left after the next turn, %d were before", left, len(all)-taken)
			}
		})
	}
}

// edited are commands whose replies the proxy edits, with one of Redis's.
var edited = map[string]string{
	"CLIENT ID": ":7\r\n", "CLIENT INFO": "$4\r\nid=7\r\n", "CLIENT GETREDIR": ":-1\r\n", "CLIENT TRACKINGINFO": "*0\r\n",
	"COMMAND": "*0\r\n", "COMMAND COUNT": ":1\r\n", "COMMAND LIST": "*0\r\n", "COMMAND DOCS": "*0\r\n", "COMMAND DOCS lock": "*0\r\n",
	"COMMAND INFO": "*0\r\n", "COMMAND INFO lock": "*1\r\n*-1\r\n", "COMMAND GETKEYS lock a": "-ERR Invalid command specified\r\n",
}

// One such reply is made at a time, however many the client asks for: other clients have their turns in between.
func TestRepliesAreEditedOneAtATime(t *testing.T) {
	for command, reply := range edited {
		t.Run(command, func(t *testing.T) {
			s, h := byHand(t, Limits{})
			const many = 3 // a lane that stands still for long is set aside, and a busy machine is slow
			feed(t, s, strings.Repeat(command+"\r\n", many-1)+command)
			for left := many; left > 0; left-- {
				if s.out.Slots.Due() != 1 {
					t.Fatalf("%d replies are due, %d are to come", s.out.Slots.Due(), left)
				}
				h.replies(t, reply)
				b, _ := s.NextWrite(nil)
				s.EndWrite(b)
			}
			if s.out.Slots.Due() != 0 || s.in.len() != 0 {
				t.Errorf("%d replies are due, %d bytes are held", s.out.Slots.Due(), s.in.len())
			}
		})
	}
}

// Such a reply is made when the client has taken those before it.
func TestRepliesAreEditedAsTheClientTakesThem(t *testing.T) {
	s, h := byHand(t, Limits{})
	feed(t, s, "GET a\r\nCLIENT ID")
	h.replies(t, "$"+"262144\r\n"+strings.Repeat("x", mostUntaken)+"\r\n")
	if s.out.Slots.Due() != 0 || s.wait != waitTaken {
		t.Fatalf("%d replies are due, the session waits for %v", s.out.Slots.Due(), s.wait)
	}
	on := make(chan struct{})
	h.flushed = sync.OnceFunc(func() { close(on) })
	b, _ := s.NextWrite(nil)
	for b != nil {
		b, _ = s.NextWrite(b)
	}
	select {
	case <-on:
	case <-time.After(10 * time.Second):
		t.Fatal("the session does not go on")
	}
	s.mu.Lock()
	defer s.unlock()
	if s.out.Slots.Due() != 1 || s.wait == waitTaken {
		t.Errorf("%d replies are due, the session waits for %v", s.out.Slots.Due(), s.wait)
	}
}

// A client may read only when it has written everything.
func TestAClientThatWritesOnNeedNotRead(t *testing.T) {
	s, h := byHand(t, Limits{})
	feed(t, s, "GET a\r\nCLIENT ID\r\nCLIENT ID")
	h.replies(t, "$"+"262144\r\n"+strings.Repeat("x", mostUntaken)+"\r\n")
	on := make(chan struct{}, 8)
	h.flushed = func() { on <- struct{}{} }
	if _, more := s.Feed([]byte(strings.Repeat("SET k v\r\n", maxQueued/8))); more {
		t.Fatal("the session reads on")
	}
	for range 2 {
		for due := 0; due == 0; {
			select {
			case <-on:
			case <-time.After(10 * time.Second):
				t.Fatal("the session does not go on")
			}
			s.mu.Lock()
			due = s.out.Slots.Due()
			s.unlock()
		}
		h.replies(t, ":1\r\n")
	}
}
