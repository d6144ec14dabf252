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
	name  string // of the primary that it knows; "": any

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
func (f *fake) connect(context.Context, string) (net.Conn, error) {
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
	if len(command.Elems) > 2 && f.name != "" && string(command.Elems[2].Str) != f.name {
		return "-ERR No such master with that name\r\n"
	}
	switch string(command.Elems[1].Str) {
	case "MASTER":
		epoch := fmt.Sprint(f.epoch)
		return fmt.Sprintf("%%2\r\n$12\r\nconfig-epoch\r\n$%d\r\n%s\r\n$23\r\ndown-after-milliseconds\r\n$4\r\n1000\r\n", len(epoch), epoch)
	case "GET-MASTER-ADDR-BY-NAME":
		host, port, _ := net.SplitHostPort(f.addr)
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	}
	return ">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n"
}

// stand is a watcher of three fakes.
type stand struct {
	fakes   []*fake
	logs    *observer.ObservedLogs
	primary *topology.Primary

	mu        sync.Mutex
	moves     []string
	roles     map[string]dial.Role // of the servers by their addresses
	asked     []string             // for their role
	downAfter time.Duration
}

// locked runs f with the fields that the watcher's goroutines use.
func (s *stand) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// watch runs a test. The Sentinels are prepared before the watcher starts.
func watch(t *testing.T, test func(s *stand), prepare ...func(s *stand)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.DebugLevel)
		s := &stand{primary: topology.NewPrimary(), logs: logs, roles: map[string]dial.Role{}}
		s.are(dial.Primary, "10.0.0.1:6379", "b.example:6379", "10.0.0.3:6379")
		var servers []topology.Server
		for i := range 3 {
			servers = append(servers, topology.Server{Network: "tcp", Addr: fmt.Sprintf("s%d:26379", i)})
			s.fakes = append(s.fakes, &fake{epoch: 1, addr: "10.0.0.1:6379"})
		}
		announced, err := topology.ParseAddressMap([]string{"10.0.0.2=b.example"})
		if err != nil {
			t.Fatal(err)
		}
		w := New(Options{
			Name: "mymaster", Sentinels: servers, Map: announced, Primary: s.primary, Logger: zap.New(core),
			Role: func(_ context.Context, addr string) (role dial.Role) {
				s.locked(func() { role, s.asked = s.roles[addr], append(s.asked, addr) })
				return role
			},
			Moved:     func(from, to string) { s.locked(func() { s.moves = append(s.moves, from+">"+to) }) },
			DownAfter: func(d time.Duration) { s.locked(func() { s.downAfter = d }) },
		})
		for i, l := range w.links {
			l.connect = s.fakes[i].connect
		}
		for _, f := range prepare {
			f(s)
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

func TestAStartWithoutAMajoritySaysWhy(t *testing.T) {
	watch(t, func(s *stand) {
		says := func(words string) {
			t.Helper()
			if _, err := s.primary.Resolve("p"); !errors.Is(err, topology.ErrUnknown) || !strings.Contains(err.Error(), words) {
				t.Errorf("%v, want %q", err, words)
			}
		}
		says("do not agree")
		s.fakes[2].die()
		s.after(answerLife + time.Second)
		says("the sentinels name b.example:6379, but it says that it is a replica")
		s.are(dial.Untold, "b.example:6379")
		s.after(2 * time.Second)
		s.want(t, ">b.example:6379")
	}, func(s *stand) {
		s.fakes[0].down = true
		s.fakes[1].addr = "10.0.0.2:6379"
		s.are(dial.Replica, "b.example:6379")
	})
}

func TestAnEventOrADoubtIsAReasonToAsk(t *testing.T) {
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
		s.fakes[2].tell("+switch-master", "mymaster2 10.0.0.1 6379 10.0.0.2 6379")
		s.after(time.Millisecond)
		s.want(t, first)
		s.fakes[2].tell("+switch-master", "mymaster 10.0.0.1 6379 10.0.0.2 6379")
		s.after(time.Millisecond)
		s.want(t, first, "10.0.0.1:6379>b.example:6379")
		s.after(askEvery)
		s.fakes[0].set(3, "10.0.0.3:6379")
		s.fakes[1].set(3, "10.0.0.3:6379")
		s.primary.Doubt("10.0.0.2:6379")
		s.after(time.Millisecond)
		s.want(t, first, "10.0.0.1:6379>b.example:6379", "b.example:6379>10.0.0.3:6379")
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
		s.after(10 * time.Second)
		s.want(t, first)
		s.locked(func() {
			if slices.Contains(s.asked, "10.0.0.3:6379") {
				t.Error("a server that one of three names has got the proxy's password")
			}
		})
		s.are(dial.Replica, "10.0.0.1:6379")
		s.after(2 * time.Second)
		s.want(t, first, "10.0.0.1:6379>10.0.0.3:6379")
	})
}

// are gives servers a role.
func (s *stand) are(role dial.Role, addrs ...string) {
	s.locked(func() {
		for _, addr := range addrs {
			s.roles[addr] = role
		}
	})
}

const promises = "slave 10.0.0.2:6379 10.0.0.2 6379 @ mymaster 10.0.0.1 6379"

func TestAPromotedReplicaIsFollowedBeforeTheSentinelsNameIt(t *testing.T) {
	watch(t, func(s *stand) {
		s.are(dial.Replica, "b.example:6379")
		for _, other := range []string{"@ other 10.0.0.1", "@ mymaster 10.9.9.9"} { // of a foreign Sentinel
			s.fakes[0].tell(promoting, strings.Replace(promises, "@ mymaster 10.0.0.1", other, 1))
		}
		s.after(5 * promotionLooks)
		s.locked(func() {
			if len(s.asked) > 0 {
				t.Errorf("%q have got the proxy's password", s.asked)
			}
		})
		s.fakes[0].tell(promoting, promises)
		s.after(5 * promotionLooks)
		s.want(t, first) // it is a replica still
		s.are(dial.Primary, "b.example:6379")
		s.after(promotionLooks)
		s.want(t, first, "10.0.0.1:6379>b.example:6379")
		s.after(2 * time.Second)
		for _, f := range s.fakes {
			f.set(2, "10.0.0.2:6379")
		}
		s.after(2 * agreedFor)
		s.want(t, first, "10.0.0.1:6379>b.example:6379")
	})
}

func TestAPromotionIsTriedWhenTheTrialBeforeItIsOver(t *testing.T) {
	watch(t, func(s *stand) {
		s.are(dial.Replica, "b.example:6379")
		s.fakes[0].tell(promoting, promises)
		s.after(promotionLooks)
		s.fakes[1].tell(promoting, strings.ReplaceAll(promises, "10.0.0.2", "10.0.0.3"))
		s.after(promotionLimit + promotionLooks)
		s.want(t, first, "10.0.0.1:6379>10.0.0.3:6379")
	})
}

func TestAPromotionThatTheSentinelsForgetIsUndone(t *testing.T) {
	watch(t, func(s *stand) {
		s.fakes[0].tell(promoting, promises)
		s.after(promotionLooks)
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
		s.are(dial.Replica, "10.9.9.9:6379")
		s.after(2 * agreedFor)
		s.want(t, first)
		s.logged(t, "the sentinels name another primary, which is not followed", 1)
		s.are(dial.Primary, "10.9.9.9:6379")
		s.after(2 * time.Second)
		s.want(t, first, "10.0.0.1:6379>10.9.9.9:6379")
		s.logged(t, "the sentinels name another primary, without a later failover: it is followed", 1)
		s.are(dial.Unreachable, "10.9.9.9:6379")
		for _, f := range s.fakes[:2] {
			f.set(0, "10.0.0.3:6379")
		}
		s.after(2 * time.Second)
		s.want(t, first, "10.0.0.1:6379>10.9.9.9:6379", "10.9.9.9:6379>10.0.0.3:6379")
	})
}

// logged counts warnings.
func (s *stand) logged(t *testing.T, message string, want int) {
	t.Helper()
	if n := s.logs.FilterMessage(message).FilterLevelExact(zap.WarnLevel).Len(); n != want {
		t.Errorf("%d entries %q, want %d", n, message, want)
	}
}

// A Sentinel that does not know the primary, that is dead, or refuses the password, is reported once, and so is its return.
func TestASentinelThatCannotBeAskedIsReportedOnce(t *testing.T) {
	watch(t, func(s *stand) {
		s.fakes[0].change(func(f *fake) { f.name = "other" })
		s.after(time.Second)
		s.fakes[1].die()
		s.after(2 * time.Minute)
		s.logged(t, "a sentinel does not know the primary", 1)
		s.logged(t, "a sentinel cannot be reached", 1)
		s.fakes[1].change(func(f *fake) {
			f.refuses = &dial.RefusedError{Reply: "WRONGPASS invalid username-password pair or user is disabled."}
		})
		s.after(2 * time.Minute)
		if n := s.logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
			t.Errorf("%d errors of a wrong password", n)
		}
		s.fakes[1].change(func(f *fake) { f.down, f.refuses = false, nil })
		s.after(time.Minute)
		if n := s.logs.FilterMessage("a sentinel answers again").Len(); n != 1 {
			t.Errorf("%d entries of its return", n)
		}
		s.want(t, first)
	})
}
