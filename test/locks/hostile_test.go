package locks

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// hostile is what a client may send to hurt others. The reply is a prefix; empty: none is expected.
var hostile = []struct{ name, send, want string }{
	{"length that overflows", "*1\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid bulk length"},
	{"empty command name", "*1\r\n$0\r\n\r\n", "-ERR unknown command ''"},
	{"count without end", "*2147483647\r\n", "-ERR Protocol error: invalid multibulk length"},
	{"count that overflows", "*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length"},
	{"bulk of 512 MB and one", "*2\r\n$3\r\nGET\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length"},
	{"bulk of 512 MB, announced", "*2\r\n$3\r\nGET\r\n$536870912\r\nx", ""},
	{"million arguments, announced", "*1048576\r\n$1\r\nx\r\n", ""},
	{"half a command", "*2\r\n$4\r\nLOCK\r\n$1\r\n", ""},
	{"half a line", "LOCK a WAI", ""},
	{"line without end", strings.Repeat("x", 70_000), "-ERR Protocol error: too big inline request"},
	{"lock with a huge name, announced", "*2\r\n$4\r\nLOCK\r\n$500000000\r\nabc", ""},
}

func TestHostileClientsHurtNobody(t *testing.T) {
	redis := redistest.Start(t)
	p := startProxy(t, redis.Addr(), "--lock-lease", short.String())
	held := dial(t, p.addr, 2)
	held.fence("LOCK held")
	before := p.residentMiB(t)
	whole := t // connections stay open until all kinds have had their turn
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			for range 20 {
				c := raw(whole, p.addr, h.send)
				if h.want != "" {
					readPrefix(t, c, h.want)
				}
			}
			neighbour := dial(t, p.addr, 2)
			began := time.Now()
			neighbour.fence("LOCK a")
			neighbour.want("UNLOCK a", 1)
			neighbour.want("SET x 1", "OK")
			if took := time.Since(began); took > atOnce {
				t.Errorf("three commands of a neighbour took %v", took)
			}
		})
	}
	if after := p.residentMiB(t); after > before+200 {
		t.Errorf("%d MiB in use, %d before", after, before)
	}
	held.want("UNLOCK held", 1)
}

func TestRandomBytesHurtNobody(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	redis := redistest.Start(t)
	p := startProxy(t, redis.Addr(), "--lock-lease", short.String())
	held := dial(t, p.addr, 2)
	held.fence("LOCK held")
	before := p.residentMiB(t)
	words := []string{"*1\r\n", "*3\r\n", "$4\r\n", "LOCK", "UNLOCK", "\r\n", "$-1\r\n", "*-1\r\n", "WAIT", "0", "\x00", "\"", "PX", "a", " "}
	for range 200 {
		var b strings.Builder
		for b.Len() < 1+rng.IntN(2000) {
			switch rng.IntN(3) {
			case 0:
				b.WriteByte(byte(rng.UintN(256)))
			default:
				b.WriteString(words[rng.IntN(len(words))])
			}
		}
		// No bytes of a destructive command can be made of these by chance in a test's lifetime.
		raw(t, p.addr, b.String())
	}
	neighbour := dial(t, p.addr, 2)
	neighbour.fence("LOCK n")
	if after := p.residentMiB(t); after > before+200 {
		t.Errorf("%d MiB in use, %d before", after, before)
	}
	held.want("UNLOCK held", 1)
}

// raw sends bytes on a connection that stays open until the test ends.
func raw(t *testing.T, addr, send string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	// The proxy may close the connection before all is written.
	_, _ = io.WriteString(c, send)
	return c
}

func readPrefix(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	n, err := io.ReadFull(c, b)
	if errors.Is(err, os.ErrDeadlineExceeded) || string(b[:n]) != want {
		t.Fatalf("reply %q (%v), want %q", b[:n], err, want)
	}
}
