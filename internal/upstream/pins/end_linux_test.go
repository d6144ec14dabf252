package pins

import (
	"bytes"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// place is the topology of one server.
type place string

func (p place) Resolve(topology.Node) (topology.Place, error) {
	return topology.Place{Network: "tcp", Address: string(p)}, nil
}

func (place) Doubt(string) {}

// Redis sees the end of a client that has left before any other goroutine runs: meanwhile it would take an element from
// a list for it.
func TestRedisSeesTheEndOfAClientAtOnce(t *testing.T) {
	for name, leave := range map[string]func(*Pin){"half-close": (*Pin).CloseWrite, "end": (*Pin).Discard} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = ln.Close() }()
			accepted := make(chan net.Conn, 1)
			go func() {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				for b := make([]byte, 1024); ; {
					n, err := nc.Read(b)
					if err != nil {
						return
					}
					if bytes.Contains(b[:n], []byte("HELLO")) {
						_, _ = nc.Write([]byte("*0\r\n"))
						continue
					}
					accepted <- nc // the command that blocks
				}
			}()
			var running sync.WaitGroup
			stop := make(chan struct{})
			defer running.Wait()
			defer close(stop)
			ps := New(Options{
				Dialer: dial.New(dial.Options{
					Resolver: place(ln.Addr().String()), Timeout: 20 * time.Second, Wait: -1, Spawn: running.Go, Stop: stop,
				}),
				Own: func(dial.Identity) bool { return false }, Spawn: running.Go, Limits: Limits{Max: 1, MaxLogins: 1},
			})
			defer ps.Close()
			p := ps.Acquire(of("a", ""))
			defer p.Discard()
			if err := p.Append([]byte("BLPOP l 0\r\n"), unheard{}, 0, 1); err != nil {
				t.Fatal(err)
			}
			p.Send()
			redis := <-accepted
			for deadline := time.Now().Add(20 * time.Second); !p.IsReady(); runtime.Gosched() { // its writer is about to rest
				if time.Now().After(deadline) {
					t.Fatal("the command is still being written")
				}
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // no other thread runs a goroutine
			leave(p)
			if !netio.Left(redis) {
				t.Error("the connection is still open")
			}
		})
	}
}

// unheard drops what it receives.
type unheard struct{}

func (unheard) Replies(uint64, []byte, int, bool) {}
func (unheard) Lost(uint64, int, bool)            {}
func (unheard) Flush()                            {}
func (unheard) Keeps(bool) bool                   { return false }
