package sentinel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// fake is a Sentinel that answers what it is told to.
type fake struct {
	mu    sync.Mutex
	epoch int
	addr  string // host:port
	down  bool
	nc    net.Conn
	id    string
	lists []string // addresses of other Sentinels, whose ids are the same, or follow behind a =
	name  string   // of the primary that it knows; "": any
	knows []string // addresses of replicas

	refuses error // the connection
}

var errDown = errors.New("connection refused")

func (f *fake) change(how func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(f)
}

func (f *fake) set(epoch int, addr string) {
	f.change(func(f *fake) { f.epoch, f.addr = epoch, addr })
}

// connect is the connect of a link.
func (f *fake) connect(context.Context) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses != nil {
		return nil, f.refuses
	}
	if f.down {
		return nil, errDown
	}
	near, far := net.Pipe()
	f.nc = far
	go f.serve(far)
	return near, nil
}

// die ends the connection, and refuses the next ones.
func (f *fake) die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
	if f.nc != nil {
		f.nc.Close()
	}
}

// tell sends an event.
func (f *fake) tell(channel, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(f.nc, ">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(channel), channel, len(message), message)
}

func (f *fake) serve(nc net.Conn) {
	b := make([]byte, 4096)
	var in []byte
	for {
		n, err := nc.Read(b)
		if err != nil {
			return
		}
		in = append(in, b[:n]...)
		for {
			v, n, err := resp.Decode(in)
			if err != nil {
				break
			}
			in = in[n:]
			if _, err := io.WriteString(nc, f.answer(v)); err != nil {
				return
			}
		}
	}
}

func (f *fake) answer(command resp.Value) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := string(command.Elems[len(command.Elems)-1].Str)
	word := string(command.Elems[len(command.Elems)-2].Str)
	switch word {
	case "MASTER", "GET-MASTER-ADDR-BY-NAME", "SENTINELS", "REPLICAS":
		if f.name != "" && f.name != last {
			return "-ERR No such master with that name\r\n"
		}
	}
	switch word {
	case "SENTINELS":
		list := fmt.Sprintf("*%d\r\n", len(f.lists))
		for _, addr := range f.lists {
			addr, id, other := strings.Cut(addr, "=")
			if !other {
				id = addr
			}
			host, port, _ := net.SplitHostPort(addr)
			port, quiet := strings.CutSuffix(port, "!") // it has told nothing for long
			ago := "1500"
			if quiet {
				ago = "3600000"
			}
			list += string(resp.AppendCommand(nil, "ip", host, "port", port, "runid", strings.TrimSuffix(id, "!"), "flags", "sentinel", "last-hello-message", ago))
		}
		return list
	case "REPLICAS":
		list := fmt.Sprintf("*%d\r\n", len(f.knows))
		for _, addr := range f.knows {
			host, port, _ := net.SplitHostPort(addr)
			list += string(resp.AppendCommand(nil, "ip", host, "port", port, "flags", "slave"))
		}
		return list
	case "SENTINEL":
		return fmt.Sprintf("$%d\r\n%s\r\n", len(f.id), f.id)
	case "MASTER":
		epoch := fmt.Sprint(f.epoch)
		return fmt.Sprintf("%%2\r\n$12\r\nconfig-epoch\r\n$%d\r\n%s\r\n$23\r\ndown-after-milliseconds\r\n$4\r\n1000\r\n", len(epoch), epoch)
	case "GET-MASTER-ADDR-BY-NAME":
		host, port, _ := net.SplitHostPort(f.addr)
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	}
	return ">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"
}

// stand is a watcher of three fakes, and of others that these tell of.
type stand struct {
	fakes   []*fake
	others  map[string]*fake // by address
	logs    *observer.ObservedLogs
	primary *topology.Primary

	mu        sync.Mutex
	moves     []string
	primaries map[string]bool // the addresses of servers that are primaries
	looks     int             // questions to a server for its role
	downAfter time.Duration
}

// locked runs f with the fields that the watcher's goroutines use.
func (s *stand) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func watch(t *testing.T, test func(s *stand)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		s := &stand{primary: topology.NewPrimary(), others: map[string]*fake{}, logs: logs, primaries: map[string]bool{"10.0.0.1:6379": true}}
		var servers []topology.Server
		for i := range 3 {
			servers = append(servers, topology.Server{Network: "tcp", Addr: fmt.Sprintf("s%d:26379", i)})
			s.fakes = append(s.fakes, &fake{epoch: 1, addr: "10.0.0.1:6379", id: servers[i].Addr, knows: []string{"10.0.0.2:6379", "10.0.0.3:6379"}})
		}
		announced, err := topology.ParseAddressMap([]string{"10.0.0.2=b.example", "10.1.0.9=nine.example"})
		if err != nil {
			t.Fatal(err)
		}
		w := New(Options{
			Name: "mymaster", Sentinels: servers, Map: announced, Primary: s.primary, Logger: zap.New(core),
			Role: func(_ context.Context, addr string) (role dial.Role) {
				s.locked(func() {
					role = dial.Replica
					if s.primaries[addr] {
						role = dial.Primary
					}
					s.looks++
				})
				return role
			},
			Moved:     func(from, to string) { s.locked(func() { s.moves = append(s.moves, from+">"+to) }) },
			DownAfter: func(d time.Duration) { s.locked(func() { s.downAfter = d }) },
		})
		w.connect = func(ctx context.Context, addr string) (net.Conn, error) {
			for i, one := range servers {
				if one.Addr == addr {
					return s.fakes[i].connect(ctx)
				}
			}
			s.mu.Lock()
			other := s.others[addr]
			s.mu.Unlock()
			if other == nil {
				return nil, errDown
			}
			return other.connect(ctx)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		s.after(firstLook)
		test(s)
		cancel()
		<-done
		synctest.Wait()
	})
}

// after lets time pass.
func (s *stand) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *stand) want(t *testing.T, moves ...string) {
	t.Helper()
	s.locked(func() {
		if !slices.Equal(s.moves, moves) {
			t.Fatalf("moves %q, want %q", s.moves, moves)
		}
	})
}

const first = ">10.0.0.1:6379"

func TestAnEventIsAReasonToAsk(t *testing.T) {
	watch(t, func(s *stand) {
		s.want(t, first)
		s.locked(func() {
			if s.downAfter != time.Second {
				t.Errorf("down after %v", s.downAfter)
			}
		})
		s.after(askEvery)
		s.fakes[1].set(2, "10.0.0.2:6379")
		s.fakes[2].set(2, "10.0.0.2:6379")
		s.fakes[2].tell("+switch-master", "other 10.0.0.1 6379 10.0.0.2 6379")
		s.after(time.Millisecond)
		s.want(t, first)
		s.fakes[2].tell("+switch-master", "mymaster 10.0.0.1 6379 10.0.0.2 6379")
		s.after(time.Millisecond)
		s.want(t, first, "10.0.0.1:6379>b.example:6379")
	})
}

func TestSentinelsThatAreGoneChangeNothing(t *testing.T) {
	watch(t, func(s *stand) {
		for _, f := range s.fakes {
			f.die()
		}
		s.after(time.Minute)
		s.want(t, first)
		if _, err := s.primary.Resolve("p"); err != nil {
			t.Errorf("the primary is forgotten: %v", err)
		}
		s.fakes[1].set(2, "10.0.0.3:6379")
		s.fakes[1].change(func(f *fake) { f.down = false })
		s.locked(func() { s.primaries["10.0.0.3:6379"] = true })
		s.after(time.Second)
		s.want(t, first, "10.0.0.1:6379>10.0.0.3:6379")
	})
}

func TestADoubtIsAReasonToAsk(t *testing.T) {
	watch(t, func(s *stand) {
		s.after(askEvery)
		s.fakes[0].set(2, "10.0.0.3:6379")
		s.fakes[1].set(2, "10.0.0.3:6379")
		place, _ := s.primary.Resolve("p")
		s.primary.Doubt("p", place, errDown)
		s.after(time.Millisecond)
		s.want(t, first, "10.0.0.1:6379>10.0.0.3:6379")
	})
}

const promotion = "slave 10.0.0.2:6379 10.0.0.2 6379 @ mymaster 10.0.0.1 6379"

func TestAPromotedReplicaIsFollowedBeforeTheSentinelsNoticeIt(t *testing.T) {
	watch(t, func(s *stand) {
		s.fakes[0].tell(promoting, strings.Replace(promotion, "mymaster", "other", 1))
		s.fakes[0].tell(promoting, promotion)
		s.after(5 * lookEvery)
		s.want(t, first) // it is a replica still
		s.locked(func() { s.primaries["b.example:6379"] = true })
		s.after(lookEvery)
		s.want(t, first, "10.0.0.1:6379>b.example:6379")
		s.after(2 * time.Second)
		for _, f := range s.fakes {
			f.set(2, "10.0.0.2:6379")
		}
		s.after(2 * agreedFor)
		s.want(t, first, "10.0.0.1:6379>b.example:6379")
	})
}

func TestAPromotionThatTheSentinelsForgetIsUndone(t *testing.T) {
	watch(t, func(s *stand) {
		s.locked(func() { s.primaries["b.example:6379"] = true })
		s.fakes[0].tell(promoting, promotion)
		s.after(lookEvery)
		s.fakes[0].die() // it led the failover
		s.after(agreedFor - time.Second)
		s.want(t, first, "10.0.0.1:6379>b.example:6379")
		s.after(3 * time.Second)
		s.want(t, first, "10.0.0.1:6379>b.example:6379", "b.example:6379>10.0.0.1:6379")
	})
}

// Sentinels that are set up anew begin with epoch 0.
func TestAMajorityIsFollowedWhateverItsEpoch(t *testing.T) {
	watch(t, func(s *stand) {
		s.fakes[2].die()
		for _, f := range s.fakes[:2] {
			f.set(0, "10.9.9.9:6379")
		}
		s.after(2 * agreedFor)
		s.want(t, first) // no primary is there
		s.locked(func() { s.primaries["10.9.9.9:6379"] = true })
		s.after(2 * time.Second)
		s.want(t, first, "10.0.0.1:6379>10.9.9.9:6379")
		if n := s.logs.FilterMessageSnippet("without a later failover").FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
			t.Errorf("%d entries", n)
		}
		for _, f := range s.fakes[:2] {
			f.set(1, "10.9.9.8:6379")
		}
		s.after(2 * time.Second)
		s.want(t, first, "10.0.0.1:6379>10.9.9.9:6379", "10.9.9.9:6379>10.9.9.8:6379")
	})
}

// A Sentinel of another system has got the address of one of the configuration.
func TestAStrangerInTheConfigurationDoesNotMoveThePrimary(t *testing.T) {
	watch(t, func(s *stand) {
		s.locked(func() { s.primaries["10.9.9.9:6379"] = true })
		s.fakes[0].set(1000, "10.9.9.9:6379")
		s.fakes[0].tell(promoting, "slave 10.9.9.9:6379 10.9.9.9 6379 @ mymaster 10.9.9.1 6379")
		s.after(2 * agreedFor)
		s.want(t, first)
		s.locked(func() {
			if s.looks > 0 {
				t.Error("a server of which no other Sentinel knows has got the proxy's password")
			}
		})
		for _, f := range s.fakes[1:] {
			f.set(2, "10.0.0.2:6379")
		}
		s.after(2 * time.Second)
		s.want(t, first, "10.0.0.1:6379>b.example:6379")
	})
}

// At the start only the stranger answers in time.
func TestAStrangerThatWasFollowedIsLeft(t *testing.T) {
	watch(t, func(s *stand) {
		s.locked(func() { s.primaries["10.9.9.9:6379"] = true })
		for _, f := range s.fakes {
			f.set(1000, "10.9.9.9:6379")
		}
		s.after(2 * time.Second)
		for _, f := range s.fakes[1:] {
			f.set(1, "10.0.0.1:6379")
		}
		s.after(2 * agreedFor)
		s.want(t, first, "10.0.0.1:6379>10.9.9.9:6379", "10.9.9.9:6379>10.0.0.1:6379")
	})
}
