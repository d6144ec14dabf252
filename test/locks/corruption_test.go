package locks

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A network, or a Redis, that damages bytes ends connections. The proxy lives, and serves all clients and locks when the damage has ended.
func TestDamagedRepliesOfRedisHurtNobodyForLong(t *testing.T) {
	t.Parallel()
	runDamage(t, seedOf(t), 5*time.Second)
}

// runDamage has clients use a proxy for some time, while every now and then some bytes of Redis are damaged.
func runDamage(t *testing.T, seed uint64, length time.Duration) {
	redis := redistest.Start(t)
	relay := redistest.StartRelay(t, redis.Addr())
	p := startProxy(t, relay.Addr(), "--lock-lease", "2s")
	before := p.residentMiB(t)
	var served, failed atomic.Int64
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for i := range 12 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				converse(p.addr, rng, &served, &failed)
			}
		})
	}
	phases := time.NewTicker(250 * time.Millisecond)
	defer phases.Stop()
	for i, end := uint64(0), time.Now().Add(length); time.Now().Before(end) && p.Running(); i++ {
		if i%2 == 0 {
			relay.Damage(redistest.Random(seed+i, 10<<(i/2%5)))
		} else {
			relay.Damage(nil)
		}
		<-phases.C
	}
	relay.Damage(nil)
	close(stop)
	clients.Wait()
	if !p.Running() {
		t.Fatal("the proxy has ended") // its log follows
	}
	t.Logf("%d conversations served, %d broken", served.Load(), failed.Load())
	if served.Load() == 0 || failed.Load() == 0 {
		t.Error("nothing was tested")
	}
	redis.Do(t, "FLUSHALL")
	redistest.Eventually(t, patience, "all kinds of commands to be served", func() bool {
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range conversations {
			if !talk(p.addr, rng, conversations[i]) {
				return false
			}
		}
		return true
	})
	if log := p.logText(t); strings.Contains(log, "panic") {
		t.Errorf("a session has panicked:\n%s", log[strings.Index(log, "panic"):])
	}
	if after := p.residentMiB(t); after > before+300 {
		t.Errorf("%d MiB in use, %d before", after, before)
	}
}

// conversations are lines of commands, each sent as a whole. Each command has one reply, but for those behind "~", whose first reply is read.
var conversations = []string{
	"SET k1 v|GET k1|MGET k1 k2|INCR n|HSET h a 1|HGETALL h|DEL k1",
	"HELLO 3|HGETALL h|CLIENT ID|PING|CONFIG GET save",
	"LOCK a WAIT 1000 PX 5000|UNLOCK a",
	"LOCK b WAIT 1000|LOCKINFO b|UNLOCK b",
	"HELLO 3|TRYLOCK c WAIT 500|EXTENDLOCK c PX 3000|UNLOCK c",
	"FAIRLOCK d WAIT 500|UNLOCK d",
	"TRYLOCK e|TRYLOCK e|UNLOCK e|UNLOCK e|LOCKLIST",
	"MULTI|SET k3 v|LRANGE l 0 -1|EXEC",
	"WATCH w|MULTI|INCR w|EXEC|UNWATCH",
	"SUBSCRIBE ch|UNSUBSCRIBE ch",
	"HELLO 3|SUBSCRIBE ch|PING|UNSUBSCRIBE ch",
	"PUBLISH ch m|RPUSH l 1|BLPOP l 1|BLPOP none 0.05",
	"INFO|INFO lockproxy|COMMAND COUNT|COMMAND INFO get lock|CLIENT LIST|CLIENT INFO|COMMAND DOCS get lock",
	"EVAL return{1,{2,redis.call('time')}} 0|SELECT 1|GET k|SELECT 0|WAIT 0 10",
	"AUTH x y|CLIENT SETNAME n|CLIENT GETNAME|CLIENT KILL ID 99999999|RESET",
}

func converse(addr string, rng *rand.Rand, served, failed *atomic.Int64) {
	if talk(addr, rng, conversations[rng.IntN(len(conversations))]) {
		served.Add(1)
	} else {
		failed.Add(1)
	}
}

// talk has a conversation on a new connection. It reports whether all replies came.
func talk(addr string, rng *rand.Rand, conversation string) bool {
	nc, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return false
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(3 * time.Second))
	commands := strings.Split(conversation, "|")
	var wire [][]byte
	for _, c := range commands {
		wire = append(wire, resp.AppendCommand(nil, strings.Fields(c)...))
	}
	in := &frames{in: nc}
	if rng.IntN(2) == 0 { // all at once
		if _, err := nc.Write(bytes.Join(wire, nil)); err != nil {
			return false
		}
		wire = nil
	}
	for i := range commands {
		if wire != nil {
			if _, err := nc.Write(wire[i]); err != nil {
				return false
			}
		}
		if !in.next() {
			return false
		}
	}
	return true
}

// frames reads the replies to a client.
type frames struct {
	in   io.Reader
	buf  []byte
	scan resp.Scanner
}

func (r *frames) next() bool {
	for seen := 0; ; {
		n, whole, err := r.scan.Scan(r.buf[seen:])
		if seen += n; whole {
			if kind := r.scan.Kind(); kind == resp.Push && !bytes.Contains(r.buf[:seen], []byte("subscribe")) {
				r.buf, seen = r.buf[seen:], 0
				continue
			}
			r.buf = r.buf[seen:]
			return true
		}
		chunk := make([]byte, 16<<10)
		if err == nil {
			n, err = r.in.Read(chunk)
		}
		if err != nil {
			return false
		}
		r.buf = append(r.buf, chunk[:n]...)
	}
}

// logText is the log.
func (p *proxy) logText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
