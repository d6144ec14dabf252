package load

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"
)

// serve answers each command of one line per argument count with reply, after the pause that slow says for its number.
func serve(t *testing.T, reply string, slow func(n int) time.Duration) string {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewScanner(conn)
		for n := 0; in.Scan(); {
			if in.Text() != "PING" {
				continue
			}
			time.Sleep(slow(n)) // the server under test is slow
			n++
			if _, err := conn.Write([]byte(reply)); err != nil {
				return
			}
		}
	}()
	return ln.Addr().String()
}

func drive(t *testing.T, addr string, w Workload) *Loop {
	t.Helper()
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if err := l.Dial(addr, 1, w); err != nil {
		t.Fatal(err)
	}
	return l
}

// patience bounds what ends by itself.
const patience = 10 * time.Second

func TestOpenLoopCountsAStallForAllWhoWereDue(t *testing.T) {
	const stall = 200 * time.Millisecond
	addr := serve(t, "+PONG\r\n", func(n int) time.Duration {
		if n == 10 {
			return stall
		}
		return 0
	})
	w := &Open{Commands: Commands{Command("PING")}}
	w.Hist = NewHistogram()
	l := drive(t, addr, w)
	if err := w.Begin(l, 1000); err != nil {
		t.Fatal(err)
	}
	w.Record(l)
	if err := l.Run(t.Context(), patience, func() bool { return w.next >= 500 }); err != nil {
		t.Fatal(err)
	}
	w.End(l)
	// About 200 of 500 commands were due during the stall, evenly spread over it: half of those waited for half of it.
	if n := w.Hist.TotalCount(); n < 400 {
		t.Errorf("%d commands of 500", n)
	}
	if p80 := time.Duration(w.Hist.ValueAtQuantile(85)); p80 < stall/4 {
		t.Errorf("85%% waited less than %v although one in five stood behind a stall of %v", p80, stall)
	}
}

func TestOpenLoopCountsFromWhenACommandWasDue(t *testing.T) {
	const late = 100 * time.Millisecond
	addr := serve(t, "+PONG\r\n", func(int) time.Duration { return 0 })
	w := &Open{Commands: Commands{Command("PING")}}
	w.Hist = NewHistogram()
	l := drive(t, addr, w)
	if err := w.Begin(l, 1000); err != nil {
		t.Fatal(err)
	}
	w.Record(l)
	time.Sleep(late) // the generator itself is held up
	if err := l.Run(t.Context(), patience, func() bool { return w.Hist.TotalCount() > 0 }); err != nil {
		t.Fatal(err)
	}
	if longest := time.Duration(w.Hist.Max()); longest < late*9/10 {
		t.Errorf("the slowest is %v although one was due %v before it could be sent", longest, late)
	}
}

func TestOpenLoopCountsCommandsWithoutReply(t *testing.T) {
	addr := serve(t, "+PONG\r\n", func(int) time.Duration { return time.Second })
	w := &Open{Commands: Commands{Command("PING")}}
	w.Hist = NewHistogram()
	l := drive(t, addr, w)
	if err := w.Begin(l, 100); err != nil {
		t.Fatal(err)
	}
	w.Record(l)
	if err := l.Run(t.Context(), patience, func() bool { return w.next >= 30 }); err != nil {
		t.Fatal(err)
	}
	w.End(l)
	if w.Hist.TotalCount() < 20 || w.Hist.Max() < int64(200*time.Millisecond) {
		t.Errorf("%d commands, the slowest after %v", w.Hist.TotalCount(), time.Duration(w.Hist.Max()))
	}
}

func TestClosedLoopFollowsLongStrings(t *testing.T) {
	long := "$1000000\r\n" + strings.Repeat("x", 1_000_000) + "\r\n"
	addr := serve(t, long, func(int) time.Duration { return 0 })
	w := &Closed{Commands: Commands{Command("PING")}, Depth: 3}
	w.On, w.Hist = true, NewHistogram()
	l := drive(t, addr, w)
	if err := l.Run(t.Context(), 10*time.Second, func() bool { return w.Hist.TotalCount() >= 9 }); err != nil {
		t.Fatal(err)
	}
	if n := w.Hist.TotalCount(); n < 9 {
		t.Fatalf("%d replies", n)
	}
}

func TestErrorReplyEndsTheRun(t *testing.T) {
	addr := serve(t, "-ERR no\r\n", func(int) time.Duration { return 0 })
	w := &Closed{Commands: Commands{Command("PING")}, Depth: 1}
	w.Hist = NewHistogram()
	err := drive(t, addr, w).Run(t.Context(), 10*time.Second, nil)
	if err == nil || !strings.Contains(err.Error(), "ERR no") {
		t.Fatalf("got %v", err)
	}
}
