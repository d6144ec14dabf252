package locks

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
)

// ledger is the resource that the locks protect: one counter per key, read and then written by whoever holds the lock.
// It is fenced: it remembers the largest fence it has seen and refuses smaller ones. Reads are fenced too, or an old
// reader's write could slip in before the new reader's first one.
//
//	R key fence        ──► ok value | no
//	W key fence value  ──► ok | no
//
// Beside it lies the same counter without a fence, to show what a lease alone cannot prevent.
type ledger struct {
	ln   net.Listener
	done sync.WaitGroup // accept loop and connections

	mu      sync.Mutex
	open    map[net.Conn]struct{} // nil: closed
	entries map[string]*entry
}

type entry struct {
	fence, value int64
	writes       int64 // accepted
	refusals     int64
	lost         int64 // accepted writes that overwrote what their writer had not seen
	naked        int64
	nakedLost    int64
}

func newLedger(socket string) (*ledger, error) {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	l := &ledger{ln: ln, open: make(map[net.Conn]struct{}), entries: make(map[string]*entry)}
	l.done.Go(l.accept)
	return l, nil
}

func (l *ledger) close() {
	l.ln.Close()
	l.mu.Lock()
	for c := range l.open {
		c.Close()
	}
	l.open = nil
	l.mu.Unlock()
	l.done.Wait()
}

func (l *ledger) accept() {
	for {
		c, err := l.ln.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		if l.open == nil {
			l.mu.Unlock()
			c.Close()
			return
		}
		l.open[c] = struct{}{}
		l.mu.Unlock()
		l.done.Go(func() { l.serve(c) })
	}
}

func (l *ledger) serve(c net.Conn) {
	defer func() {
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
		c.Close()
	}()
	rd := bufio.NewReader(c)
	for {
		line, err := rd.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := fmt.Fprintln(c, l.answer(line)); err != nil {
			return
		}
	}
}

func (l *ledger) answer(line string) string {
	var verb, key string
	var fence, value, naked int64
	n, _ := fmt.Sscan(line, &verb, &key, &fence, &value, &naked)
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		e = &entry{}
		l.entries[key] = e
	}
	if verb == "W" && n == 5 {
		if e.naked != naked {
			e.nakedLost++
		}
		e.naked = naked + 1
	}
	if fence < e.fence {
		e.refusals++
		return "no"
	}
	e.fence = fence
	if verb == "R" {
		return fmt.Sprintf("ok %d %d", e.value, e.naked)
	}
	if e.value != value {
		e.lost++
	}
	e.value = value + 1
	e.writes++
	return "ok"
}

// ledgerClient is a worker's connection to the ledger.
type ledgerClient struct {
	nc net.Conn
	rd *bufio.Reader
}

var errStale = errors.New("the ledger has seen a larger fence")

func dialLedger(socket string) (*ledgerClient, error) {
	nc, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &ledgerClient{nc: nc, rd: bufio.NewReader(nc)}, nil
}

// read returns the fenced and the naked counter.
func (l *ledgerClient) read(key string, fence int64) (value, naked int64, err error) {
	line, err := l.ask("R", key, fence)
	if err == nil {
		_, err = fmt.Sscan(line, new(string), &value, &naked)
	}
	return value, naked, err
}

// write adds one to what was read.
func (l *ledgerClient) write(key string, fence, value, naked int64) error {
	_, err := l.ask("W", key, fence, value, naked)
	return err
}

func (l *ledgerClient) ask(words ...any) (string, error) {
	if _, err := fmt.Fprintln(l.nc, words...); err != nil {
		return "", err
	}
	line, err := l.rd.ReadString('\n')
	if err == nil && line == "no\n" {
		err = errStale
	}
	return line, err
}
