package locks

import (
	"net"
	"sync"
	"testing"
)

// relays is the network that needs no privileges: everybody is on the loopback interface, and each pair of parties is
// connected by a relay. What is cut off is held back, not lost; the kernels on both sides acknowledge it all the same,
// so unlike in a real partition nobody's retransmissions time out.
type relays struct {
	byPair map[[2]node]*relay // client side first
}

func newRelays(t *testing.T, listens map[node]string) *relays {
	t.Helper()
	r := &relays{byPair: make(map[[2]node]*relay)}
	for _, p := range pairs {
		one, err := newRelay(listens[p[1]])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(one.close)
		r.byPair[p] = one
	}
	return r
}

func (r *relays) reach(from, to node) string { return r.byPair[[2]node{from, to}].ln.Addr().String() }

func (r *relays) cut(from, to node) {
	if one := r.byPair[[2]node{from, to}]; one != nil {
		one.gates[0].shut()
		return
	}
	r.byPair[[2]node{to, from}].gates[1].shut()
}

func (r *relays) heal() {
	for _, one := range r.byPair {
		one.gates[0].open()
		one.gates[1].open()
	}
}

func (r *relays) reset(a, b node) { r.byPair[[2]node{a, b}].reset() }

// gate lets bytes of one direction through, or holds them.
type gate struct {
	mu     sync.Mutex
	isShut bool
	opened *sync.Cond
}

func newGate() *gate {
	g := &gate{}
	g.opened = sync.NewCond(&g.mu)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isShut = true
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isShut = false
	g.opened.Broadcast()
}

func (g *gate) pass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.isShut {
		g.opened.Wait()
	}
}

// relay copies bytes between its clients and one target. Per connection there are two goroutines, one per direction.
type relay struct {
	ln     net.Listener
	target string
	gates  [2]*gate // to the target, and back
	entry  *gate    // new connections
	done   sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.TCPConn]struct{} // nil: closed
}

func newRelay(target string) (*relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{ln: ln, target: target, gates: [2]*gate{newGate(), newGate()}, entry: newGate(), conns: make(map[*net.TCPConn]struct{})}
	r.done.Go(r.accept)
	return r, nil
}

func (r *relay) close() {
	r.ln.Close()
	r.gates[0].open()
	r.gates[1].open()
	r.entry.open()
	r.mu.Lock()
	for c := range r.conns {
		c.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.done.Wait()
}

// reset closes all connections so that both ends see a RST.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.SetLinger(0)
		c.Close()
	}
}

func (r *relay) accept() {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		r.done.Go(func() { r.serve(c.(*net.TCPConn)) })
	}
}

func (r *relay) serve(client *net.TCPConn) {
	defer client.Close()
	if !r.add(client) {
		return
	}
	defer r.remove(client)
	r.gates[0].pass()
	r.entry.pass()
	c, err := net.Dial("tcp", r.target)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	if !r.add(server) {
		return
	}
	defer r.remove(server)
	var back sync.WaitGroup
	back.Go(func() { r.gates[1].copy(client, server) })
	r.gates[0].copy(server, client)
	back.Wait()
}

func (r *relay) add(c *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *relay) remove(c *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// copy moves bytes until either end is gone, and passes the end on.
func (g *gate) copy(to, from *net.TCPConn) {
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		g.pass()
		if n > 0 {
			if _, werr := to.Write(b[:n]); werr != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			_ = to.CloseWrite()
			return
		}
	}
}
