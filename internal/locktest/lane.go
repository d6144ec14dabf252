package locktest

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Lane is an ordered connection to Redis that carries scripts. Answers are given on one goroutine, in order.
type Lane struct {
	t    testing.TB
	Conn net.Conn
	work chan func(*bufio.Reader)
	done chan struct{}

	Answered atomic.Int64 // scripts that were answered by Redis, whether or not the session has been told

	mu     sync.Mutex
	closed bool
	hold   chan struct{} // while set, answers wait for it to be closed
	fail   error         // instead of the next answers; contract.ErrUnsent also sends nothing
}

// NewLane connects to Redis.
func NewLane(t testing.TB, addr string) *Lane {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	l := &Lane{t: t, Conn: conn, work: make(chan func(*bufio.Reader), 1000), done: make(chan struct{})}
	go l.read()
	return l
}

func (l *Lane) read() {
	defer close(l.done)
	in := bufio.NewReader(l.Conn)
	for f := range l.work {
		f(in)
	}
}

func (l *Lane) send(c contract.Call, done func(resp.Value, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fail, hold := l.fail, l.hold
	switch {
	case l.closed || errors.Is(fail, contract.ErrUnsent):
		go done(resp.Value{}, contract.ErrUnsent)
		return
	}
	args := [][]byte{[]byte("EVAL"), []byte(c.Script.Text()), []byte(strconv.Itoa(len(c.Keys)))}
	for _, arg := range slices.Concat(c.Keys, c.Args) {
		args = append(args, []byte(arg))
	}
	if _, err := l.Conn.Write(resp.AppendCommand(nil, args...)); err != nil {
		fail = contract.ErrInDoubt
	}
	l.work <- func(in *bufio.Reader) {
		v, err := readValue(in)
		l.Answered.Add(1)
		if hold != nil {
			<-hold
		}
		if err != nil || fail != nil {
			v, err = resp.Value{}, contract.ErrInDoubt
		}
		done(v, err)
	}
}

// Close ends the lane after the answers on their way.
func (l *Lane) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.work)
		go func() {
			<-l.done
			_ = l.Conn.Close()
		}()
	}
}

// Fail has the next answers fail with that error; contract.ErrUnsent also sends nothing. nil: they do not fail any
// more.
func (l *Lane) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// HoldBack keeps answers until the returned function is called.
func (l *Lane) HoldBack() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gate := make(chan struct{})
	l.hold = gate
	return func() {
		l.mu.Lock()
		l.hold = nil
		l.mu.Unlock()
		close(gate)
	}
}

func readValue(in *bufio.Reader) (resp.Value, error) {
	var buf []byte
	for {
		b, err := in.ReadByte()
		if err != nil {
			return resp.Value{}, err
		}
		buf = append(buf, b)
		if b != '\n' {
			continue
		}
		v, _, err := resp.Decode(buf)
		if errors.Is(err, resp.ErrIncomplete) {
			continue
		}
		return v, err
	}
}

// Backlog is how many scripts wait for their answers.
func (l *Lane) Backlog() int { return len(l.work) }
