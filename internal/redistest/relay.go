package redistest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
)

// Relay stands between a server and its clients. It may hold back what one side sends, end all connections, and damage
// the bytes of the server. Each connection has two goroutines, one for each direction.
type Relay struct {
	ln     net.Listener
	target string
	done   sync.WaitGroup

	mu     sync.Mutex
	opened sync.Cond                 // some of held is false now
	held   [2]bool                   // by direction
	conns  map[*net.TCPConn]struct{} // both ends of all connections; nil: closed
	damage func(chunk []byte) []byte // nil: none
	last   []byte                    // ends the connection on which a client sends it; empty: none does
	fate   Fate                      // of that
	late   chan chan struct{}        // the channel that is closed when the server has dealt with a late request
}

// Fate is what becomes of the bytes behind which a connection ends. The client sees the end, and no answer.
type Fate int

// The fates.
const (
	Unheard    Fate = iota // the server does not get them
	Heard                  // it does
	HeardAlone             // it does, and nothing else of any client until Pass
	Late                   // it does at Deliver
)

// Direction is a way through a Relay.
type Direction int

// The ways through a Relay.
const (
	ToServer Direction = iota
	ToClients
)

// StartRelay runs a relay to a server until the test ends.
func StartRelay(t testing.TB, target string) *Relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{ln: ln, target: target, conns: map[*net.TCPConn]struct{}{}, late: make(chan chan struct{})}
	r.opened.L = &r.mu
	r.done.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// Addr is where clients connect.
func (r *Relay) Addr() string { return r.ln.Addr().String() }

// Damage has f replace the bytes of the server from now on. nil: they stay as they are. f is called one call at a time.
func (r *Relay) Damage(f func(chunk []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.damage = f
}

// Hold holds back the bytes of a direction, and with those to the server new connections, until Pass. The kernels on
// both sides acknowledge them all the same.
func (r *Relay) Hold(d Direction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[d] = true
}

// Pass ends each Hold.
func (r *Relay) Pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = [2]bool{}
	r.opened.Broadcast()
}

// Reset ends all connections. Both ends of each see a RST.
func (r *Relay) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.conns {
		_, _ = nc.SetLinger(0), nc.Close()
	}
}

// CutAt ends the connection of the next client that sends this text, which has that fate.
func (r *Relay) CutAt(text string, f Fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.fate = []byte(text), f
}

// Deliver has the server get what is late, and returns when the server has dealt with it.
func (r *Relay) Deliver() {
	done := make(chan struct{})
	r.late <- done
	<-done
}

// Cuts reports whether the connection that CutAt means is still to end.
func (r *Relay) Cuts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.last) > 0
}

// isLast reports whether the connection of a client ends with this chunk, and its fate.
func (r *Relay) isLast(d Direction, chunk []byte) (last bool, f Fate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last = d == ToServer && len(r.last) > 0 && bytes.Contains(chunk, r.last); last {
		r.last = nil
		r.held[ToServer] = r.fate == HeardAlone
	}
	return last, r.fate
}

// end deals with the last chunk of a client whose connection has ended.
func (r *Relay) end(f Fate, to *net.TCPConn, chunk []byte) {
	if f == Late {
		done, ok := <-r.late
		if !ok { // the test is over
			return
		}
		defer close(done)
	}
	if f != Unheard {
		_, _ = to.Write(chunk)
	}
	_ = to.CloseWrite()
	if f == Late {
		_, _ = io.Copy(io.Discard, to) // until the server has closed
	}
}

func (r *Relay) close() {
	_ = r.ln.Close()
	r.Reset()
	r.mu.Lock()
	r.conns = nil // of those that come from now on, none is served
	r.mu.Unlock()
	close(r.late)
	r.Pass()
	r.done.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.done.Go(func() { r.serve(client.(*net.TCPConn)) })
	}
}

func (r *Relay) serve(client *net.TCPConn) {
	defer r.leave(client)
	if !r.enter(client) {
		return
	}
	r.let(ToServer, nil)
	nc, err := net.Dial("tcp", r.target)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	server := nc.(*net.TCPConn)
	defer r.leave(server)
	if !r.enter(server) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { r.copy(ToClients, client, server) })
	r.copy(ToServer, server, client)
	back.Wait()
}

// enter reports whether the relay has not been closed.
func (r *Relay) enter(nc *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	r.conns[nc] = struct{}{}
	return true
}

func (r *Relay) leave(nc *net.TCPConn) {
	_ = nc.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, nc)
}

// copy moves bytes until either end is gone, and passes the end on.
func (r *Relay) copy(d Direction, to, from *net.TCPConn) {
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if last, fate := r.isLast(d, buf[:n]); last {
			_, _ = from.SetLinger(0), from.Close()
			r.end(fate, to, buf[:n])
			return
		}
		if _, failed := to.Write(r.let(d, buf[:n])); failed != nil {
			_ = from.Close()
			return
		}
		if err != nil {
			_ = to.CloseWrite()
			return
		}
	}
}

// let returns the bytes that go on when they may.
func (r *Relay) let(d Direction, chunk []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.held[d] {
		r.opened.Wait()
	}
	if d == ToClients && r.damage != nil {
		chunk = r.damage(chunk)
	}
	return chunk
}
