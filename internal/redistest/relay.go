package redistest

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Relay stands between a server and its clients, and may damage the bytes of the server.
type Relay struct {
	ln     net.Listener
	target string
	done   sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}     // both ends of all connections; nil: closed
	damage func(chunk []byte) []byte // nil: none
}

// StartRelay runs a relay to a server until the test ends.
func StartRelay(t testing.TB, target string) *Relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{ln: ln, target: target, conns: map[net.Conn]struct{}{}}
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

// Reset ends all connections.
func (r *Relay) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.conns {
		_ = nc.Close()
	}
}

func (r *Relay) close() {
	_ = r.ln.Close()
	r.Reset()
	r.mu.Lock()
	r.conns = nil
	r.mu.Unlock()
	r.done.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.mu.Lock()
		if r.conns == nil {
			_, _ = client.Close(), server.Close()
		} else {
			r.conns[client], r.conns[server] = struct{}{}, struct{}{}
		}
		r.mu.Unlock()
		r.done.Go(func() { r.copy(server, client, false) })
		r.done.Go(func() { r.copy(client, server, true) })
	}
}

// copy copies bytes until either end is gone.
func (r *Relay) copy(to, from net.Conn, fromServer bool) {
	defer func() {
		_, _ = to.Close(), from.Close()
		r.mu.Lock()
		delete(r.conns, from)
		r.mu.Unlock()
	}()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		chunk := buf[:n]
		r.mu.Lock()
		if fromServer && r.damage != nil {
			chunk = r.damage(chunk)
		}
		r.mu.Unlock()
		if _, failed := to.Write(chunk); failed != nil || err != nil {
			return
		}
	}
}

// hostileWords are put into the bytes of a server by Random.
var hostileWords = []string{
	"*9223372036854775807\r\n", "$9223372036854775806\r\n", "%4611686018427387904\r\n", "*-2\r\n", "$-2\r\n", "%-1\r\n", ">-1\r\n", ">0\r\n", "~1\r\n", "*1\r\n",
	"*999999999\r\n", "$536870912\r\n", "*?\r\n", "$?\r\n;4\r\n", "|1\r\n+a\r\n+b\r\n", ".\r\n", "_\r\n", "_x\r\n", "#t\r\n", "#\r\n", ":\r\n", ":99999999999999999999\r\n",
	"+OK\r\n", "+PONG\r\n", "+QUEUED\r\n", "-ERR no\r\n", "-LOADING x\r\n", "-BUSY x\r\n", "-MOVED 1 1.2.3.4:5\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "\r\n", "\n", "\r", "\x00",
	">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n", ">3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n", ">3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n", ">2\r\n:5\r\n_\r\n",
	">2\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n", ">3\r\n$12\r\nsunsubscribe\r\n_\r\n:0\r\n", ">2\r\n$10\r\ninvalidate\r\n_\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n",
}

// Random damages about one chunk of some: it flips bits, cuts, repeats and puts in bytes, as the seed says.
func Random(seed uint64, some int) func(chunk []byte) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(chunk []byte) []byte {
		if len(chunk) == 0 || rng.IntN(some) > 0 {
			return chunk
		}
		at := rng.IntN(len(chunk))
		end := at + rng.IntN(min(len(chunk)-at, 64)) + 1
		damaged := append([]byte(nil), chunk[:at]...)
		switch rng.IntN(8) {
		case 0, 1: // a bit is flipped
			damaged = append(append(damaged, chunk[at]^1<<rng.IntN(8)), chunk[at+1:]...)
		case 2: // a digit, or any other byte, is another one
			damaged = append(append(damaged, byte(rng.UintN(256))), chunk[at+1:]...)
		case 3: // bytes are missing
			damaged = append(damaged, chunk[end:]...)
		case 4: // the end is missing
		case 5: // bytes come twice
			damaged = append(append(damaged, chunk[at:end]...), chunk[at:]...)
		case 6: // all bytes come twice
			damaged = append(append(damaged[:0], chunk...), chunk...)
		default: // a hostile word comes in front, in between, or behind
			word := hostileWords[rng.IntN(len(hostileWords))]
			switch rng.IntN(3) {
			case 0:
				damaged = append([]byte(word), chunk...)
			case 1:
				damaged = append(append([]byte(nil), chunk...), word...)
			default:
				damaged = append(append(damaged, word...), chunk[at:]...)
			}
		}
		return damaged
	}
}
