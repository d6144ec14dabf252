package stream

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// hooked is a socket that calls before in front of each write.
type hooked struct {
	syscall.RawConn
	before func()
}

func (h *hooked) SyscallConn() (syscall.RawConn, error) { return h, nil }

func (h *hooked) Write(f func(fd uintptr) bool) error {
	h.before()
	return h.RawConn.Write(f)
}

// ended is a socket that cannot be written.
type ended struct{ syscall.RawConn }

func (e ended) SyscallConn() (syscall.RawConn, error) { return e, nil }
func (ended) Write(func(fd uintptr) bool) error       { return net.ErrClosed }

// lazyOn is an open stream whose writer is asleep, and the two ends of its connection.
func lazyOn(t *testing.T, before func()) (s *Stream, redis net.Conn) {
	t.Helper()
	redis, own := redistest.TCPConns(t)
	raw, err := own.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	s = NewLazy()
	s.WriteDirectly(netio.New(&hooked{raw, before}))
	s.Open()
	<-s.Wake()
	if b := s.Take(nil); b != nil || s.Finished() {
		t.Fatalf("a new stream: %q, finished %v", b, s.Finished())
	}
	return s, redis
}

// awake reports whether the writer has been woken.
func awake(s *Stream) bool {
	select {
	case <-s.Wake():
		return true
	default:
		return false
	}
}

// The end of the input does not overtake bytes that Send is writing.
func TestTheEndComesBehindBytesOnTheirWay(t *testing.T) {
	var s *Stream
	s, redis := lazyOn(t, func() {
		s.Finish(func() { t.Error("it ends at once") })
		if awake(s) {
			t.Errorf("the writer is woken while Send writes: it takes %q, finished %v", s.Take(nil), s.Finished())
		}
	})
	send(t, s, "A1", sink{}, 1)
	s.Send()
	if !awake(s) {
		t.Fatal("the writer is not woken for the end")
	}
	if b := s.Take(nil); b != nil || !s.Finished() {
		t.Errorf("after Send: %q, finished %v", b, s.Finished())
	}
	b := make([]byte, 8)
	if n, err := redis.Read(b); string(b[:n]) != "A1" {
		t.Errorf("Redis read %q, %v", b[:n], err)
	}
}

// Bytes in front of the end of the input have one writer: after Finish it is not Send.
func TestBytesInFrontOfTheEndHaveOneWriter(t *testing.T) {
	s, _ := lazyOn(t, func() { t.Error("Send writes, and the writer has been woken") })
	send(t, s, "A1", sink{}, 1)
	s.Finish(func() { t.Error("it ends at once") })
	s.Send()
	if !awake(s) {
		t.Fatal("the writer is not woken")
	}
	if b := s.Take(nil); string(b) != "A1" || s.Finished() {
		t.Errorf("the writer takes %q, finished %v", b, s.Finished())
	}
	if b := s.Take(nil); b != nil || !s.Finished() {
		t.Errorf("then %q, finished %v", b, s.Finished())
	}
}

// Behind bytes that have been written the caller ends the connection itself.
func TestTheEndBehindWrittenBytesWaitsForNobody(t *testing.T) {
	s, _ := lazyOn(t, func() {})
	send(t, s, "A1", sink{}, 1)
	s.Send()
	now := false
	s.Finish(func() { now = true })
	if !now || awake(s) {
		t.Errorf("at once: %v", now)
	}
}

// A connection that is not ready yet ends behind the bytes that wait for it.
func TestTheEndWaitsForTheConnection(t *testing.T) {
	s := NewLazy()
	send(t, s, "A1", sink{}, 1)
	s.Finish(func() { t.Error("it ends at once") })
	s.Send()
	if awake(s) {
		t.Error("the writer is woken without a connection")
	}
	s.Open()
	if !awake(s) {
		t.Fatal("the writer is not woken")
	}
	if b := s.Take(nil); string(b) != "A1" || s.Finished() {
		t.Errorf("the writer takes %q, finished %v", b, s.Finished())
	}
	if b := s.Take(nil); b != nil || !s.Finished() {
		t.Errorf("then %q, finished %v", b, s.Finished())
	}
}

// A request of which the socket has taken a part may not count as unsent, although the rest could not be written.
func TestARequestThatWasWrittenInPartIsInDoubt(t *testing.T) {
	for _, part := range []bool{false, true} {
		s, redis := lazyOn(t, func() {})
		log := new([]string)
		request := "A1"
		if part {
			request = strings.Repeat("A", maxDirect)
		} else {
			_ = redis.Close()
		}
		to := &recorder{name: "a", log: log}
		if part {
			for range 1000 { // until the socket is full: redis does not read
				send(t, s, request, to, 1)
				if s.Send(); awake(s) {
					break
				}
			}
		} else {
			s.WriteDirectly(nil)
			send(t, s, request, to, 1)
			s.Send()
		}
		s.Unwritten(s.Take(nil))
		s.Refuse(errors.New("x"))
		if lost := (*log)[len(*log)-1]; strings.HasSuffix(lost, "sent=true") != part {
			t.Errorf("in part %v: %s", part, lost)
		}
	}
}

// laneOn is lazyOn for a stream with a writer.
func laneOn(t *testing.T, before func()) (s *Stream, redis net.Conn) {
	t.Helper()
	s, redis = lazyOn(t, before)
	s.lazy = false
	return s, redis
}

// due appends a request and reports whether the caller is to write.
func due(t *testing.T, s *Stream, raw string, to Receiver) bool {
	t.Helper()
	due, err := s.AppendDue([]byte(raw), to, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	return due
}

// One goroutine writes in place of the writer, for all that append meanwhile. The writer takes nothing, even if it is
// woken.
func TestOneGoroutineWritesInPlaceOfTheWriter(t *testing.T) {
	var s *Stream
	writes := 0
	s, redis := laneOn(t, func() {
		if writes++; writes == 1 && due(t, s, "A3", sink{}) {
			t.Error("a second goroutine is to write")
		}
		if b := s.Take(nil); b != nil {
			t.Errorf("during write %d the writer takes %q", writes, b)
		}
	})
	if !due(t, s, "A1", sink{}) || due(t, s, "A2", sink{}) {
		t.Fatal("not the first one of two is to write")
	}
	if b := s.Take(nil); b != nil || awake(s) {
		t.Fatalf("the writer takes %q", b)
	}
	s.Send()
	if b := s.Take(nil); b != nil || awake(s) || writes != 2 {
		t.Fatalf("the writer takes %q after %d writes", b, writes)
	}
	b := make([]byte, 8)
	if n, err := io.ReadFull(redis, b[:6]); string(b[:n]) != "A1A2A3" {
		t.Errorf("Redis read %q, %v", b[:n], err)
	}
	if !due(t, s, "A4", sink{}) {
		t.Error("the turn has not been given back")
	}
}

// A goroutine that writes for others passes its turn on to the writer: after some writes, or if the socket is full.
func TestTheWriterWritesTheRest(t *testing.T) {
	var s *Stream
	writes := 0
	s, _ = laneOn(t, func() {
		writes++
		due(t, s, "A", sink{})
	})
	due(t, s, "A", sink{})
	s.Send()
	if b := s.Take(nil); string(b) != "A" || !awake(s) || writes != maxWrites || maxWrites > 4 {
		t.Errorf("after %d writes the writer takes %q", writes, b)
	}

	s, _ = laneOn(t, func() {})
	for due(t, s, strings.Repeat("A", maxDirect), sink{}) { // Redis does not read
		s.Send()
		if awake(s) {
			break
		}
	}
	if b := s.Take(nil); len(b) == 0 || len(b) > maxDirect {
		t.Errorf("of a request that was written in part the writer takes %d bytes", len(b))
	}
}

// A turn ends with its connection. The bytes wait for the next one.
func TestATurnEndsWithItsConnection(t *testing.T) {
	s, _ := laneOn(t, func() { t.Error("the old turn writes") })
	log := new([]string)
	due(t, s, "A1", &recorder{name: "a", log: log, keeps: true})
	s.EndDirect()
	s.Reconnect(errors.New("x"))
	s.WriteDirectly(netio.New(&hooked{nil, func() { t.Error("the old turn writes") }}))
	s.Open()
	s.Send()
	if b := s.Take(nil); string(b) != "A1" || !awake(s) {
		t.Errorf("the writer of the next connection takes %q", b)
	}
	wantLog(t, log)
}

// Requests of which the socket has taken nothing are unsent, even if the connection ends before the writer has tried.
func TestRequestsThatCouldNotBeWrittenInPlaceAreUnsent(t *testing.T) {
	s, redis := laneOn(t, func() {})
	s.direct = netio.New(ended{})
	_ = redis.Close()
	log := new([]string)
	due(t, s, "A1", &recorder{name: "a", log: log})
	s.Send()
	s.EndDirect()
	s.Refuse(errors.New("x"))
	wantLog(t, log, "a lost 1 sent=false")
}
