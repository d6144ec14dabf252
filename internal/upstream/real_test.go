package upstream

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// finish fills in the options that a test leaves open.
func finish(o *Options) {
	o.DialTimeout = cmp.Or(o.DialTimeout, 3*time.Second)
	o.FailoverWait = cmp.Or(o.FailoverWait, time.Second)
	o.MaxLanes = cmp.Or(o.MaxLanes, 256)
	p := &o.Pins
	p.Max, p.Wait = cmp.Or(p.Max, 1000), cmp.Or(p.Wait, time.Second)
	p.MaxLogins, p.LoginWait = cmp.Or(p.MaxLogins, 16), cmp.Or(p.LoginWait, 10*time.Second)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// start runs an Upstream in front of a real Redis until the test ends.
func start(t *testing.T, opts Options) *Upstream {
	t.Helper()
	finish(&opts)
	u, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- u.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return u
}

func TestWrongCredentialsAreTriedWithPauses(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client(t)
	received := func() int {
		info, err := client.Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "total_connections_received:")
		number, _, _ := strings.Cut(rest, "\r\n")
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, begun := received(), time.Now()
	start(t, Options{Addr: srv.Addr(), User: "unknown", Password: "wrong"})
	// The pauses between four attempts of one connection are 25, 50 and 100 ms at least. A second connection may ask once.
	redistest.Eventually(t, 10*time.Second, "five attempts", func() bool { return received() >= before+5 })
	if took := time.Since(begun); took < 150*time.Millisecond {
		t.Errorf("five attempts to log in took %v", took)
	}
}

// A Redis that has too many clients at the start is asked for its commands until it answers.
func TestARefusalThatPassesIsNoMissingTable(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client(t)
	limit := func(n int) {
		if err := client.ConfigSet(t.Context(), "maxclients", strconv.Itoa(n)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	core, entries := observer.New(zap.InfoLevel)
	start(t, Options{Addr: srv.Addr(), Logger: zap.New(core)})
	redistest.Eventually(t, 10*time.Second, "a refused attempt", func() bool { return entries.Len() > 0 })
	limit(1000)
	redistest.Eventually(t, 10*time.Second, "the table of this Redis", func() bool { return entries.FilterMessage("connected to upstream").Len() > 0 })
}

// answers is a Receiver that hands over whole replies, and losses as errors.
type answers struct {
	part []byte
	got  chan string // size: as many as a test asks for
}

func newAnswers() *answers { return &answers{got: make(chan string, 100)} }

func (a *answers) Replies(_ uint64, b []byte, n int, more bool) {
	a.part = append(a.part, b...)
	if n > 1 {
		panic("the tests ask one by one")
	}
	if n == 1 {
		a.got <- string(a.part)
		a.part = nil
	}
}

func (a *answers) Lost(_ uint64, n int, sent bool) {
	for range n {
		a.got <- fmt.Sprintf("lost sent=%v", sent)
	}
}

func (a *answers) Flush() {}

func (a *answers) Keeps() bool { return false }

func (a *answers) next(t *testing.T) string {
	t.Helper()
	select {
	case s := <-a.got:
		return s
	case <-time.After(10 * time.Second):
		t.Fatal("no reply within 10 s")
		return ""
	}
}

type appender interface {
	Append(b []byte, to Receiver, tag uint64, n int) error
}

func ask(t *testing.T, c appender, args ...string) string {
	t.Helper()
	a := newAnswers()
	if err := c.Append(resp.AppendCommand(nil, args...), a, 0, 1); err != nil {
		return err.Error()
	}
	if p, ok := c.(*Pin); ok {
		p.Send()
	}
	return a.next(t)
}

func TestLaneServesItsIdentity(t *testing.T) {
	r := redistest.Start(t)
	for _, addr := range []string{r.Addr(), "unix:" + r.Socket()} {
		u := start(t, Options{Addr: addr})
		l := u.Lane(Identity{DB: 3, Proto: 3}, topology.Any, nil, "", Reads)
		ask(t, l, "SET", "k", "v")
		if got := ask(t, l, "HGETALL", "none"); got != "%0\r\n" {
			t.Errorf("HGETALL over %s = %q, want a RESP3 map", addr, got)
		}
		other := u.Lane(Identity{DB: 0, Proto: 2}, topology.Any, nil, "", Reads)
		if got := ask(t, other, "GET", "k"); got != "$-1\r\n" {
			t.Errorf("GET in db 0 = %q, want a null: the lanes must not share a database", got)
		}
		u.Leave(l)
		u.Leave(other)
	}
}

func TestLaneReconnectsAndNeverSendsTwice(t *testing.T) {
	r := redistest.Start(t)
	u := start(t, Options{Addr: r.Addr()})
	l := u.Lane(Identity{Proto: 2}, topology.Any, nil, "", Reads)
	if got := ask(t, l, "INCR", "n"); got != ":1\r\n" {
		t.Fatalf("INCR = %q", got)
	}
	r.Pause()
	a := newAnswers()
	if err := l.Append(resp.AppendCommand(nil, "INCR", "n"), a, 0, 1); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "the command is written", func() bool { appended, written := l.Progress(); return appended == written })
	r.Kill()
	if got, want := a.next(t), "lost sent=true"; got != want {
		t.Errorf("a command in flight at a crash = %q, want %q", got, want)
	}
	redistest.Eventually(t, 10*time.Second, "the lane refuses at once while Redis is down", func() bool {
		got := ask(t, l, "PING")
		return got == stream.ErrDown.Error() || got == "lost sent=false"
	})
	r.Restart()
	redistest.Eventually(t, 10*time.Second, "the lane serves again", func() bool { return ask(t, l, "PING") == "+PONG\r\n" })
	if got := ask(t, l, "EXISTS", "n"); got != ":0\r\n" {
		t.Errorf("EXISTS n = %q: the lost INCR was sent again", got)
	}
	u.Leave(l)
}

func TestPinsAreBoundedAndQueued(t *testing.T) {
	r := redistest.Start(t)
	opts := Options{Addr: r.Addr(), Pins: PinLimits{Max: 2, Wait: 50 * time.Millisecond}}
	u := start(t, opts)
	id := Identity{Proto: 2}
	first, second := u.Acquire(Ask{ID: id}), u.Acquire(Ask{ID: id})
	if first == nil || second == nil {
		t.Fatal("two pins are allowed")
	}
	if u.Acquire(Ask{ID: id}) != nil {
		t.Fatal("a third pin beyond the limit of two")
	}
	got := make(chan *Pin, 1)
	u.AwaitPin(Ask{ID: id}, func(p *Pin, _ error) { got <- p })
	if p := <-got; p != nil {
		t.Error("a pin was delivered though none was given back")
	}
	opts.Pins.Wait = time.Minute
	u.Change(opts.Pins, 0)
	u.AwaitPin(Ask{ID: id}, func(p *Pin, _ error) { got <- p })
	ask(t, first, "PING")
	first.Release()
	p := <-got
	if p == nil || p != first {
		t.Fatalf("the waiter got %p, want the released pin %p", p, first)
	}
	withdraw := u.AwaitPin(Ask{ID: id}, func(*Pin, error) { t.Error("a withdrawn request was served") })
	if !withdraw() {
		t.Error("withdraw reported that the request was settled")
	}
	p.Discard()
	second.Discard()
	if work, _ := u.Pins(); work.Open != 0 || work.Idle != 0 {
		t.Errorf("%d open and %d idle pins, want none", work.Open, work.Idle)
	}
}

func TestIdlePinMakesRoomForAnotherIdentity(t *testing.T) {
	r := redistest.Start(t)
	u := start(t, Options{Addr: r.Addr(), Pins: PinLimits{Max: 1}})
	p := u.Acquire(Ask{ID: Identity{Proto: 2}})
	ask(t, p, "PING")
	p.Release()
	if again := u.Acquire(Ask{ID: Identity{Proto: 2}}); again != p {
		t.Error("an idle pin of the same identity was not used again")
	}
	p.Release()
	q := u.Acquire(Ask{ID: Identity{Proto: 2, DB: 5}})
	if q == nil {
		t.Fatal("an idle pin of another identity kept the only place")
	}
	if got := ask(t, q, "PING"); got != "+PONG\r\n" {
		t.Errorf("PING = %q", got)
	}
	q.Release()
}

func TestPinWithoutRedisReportsUnsent(t *testing.T) {
	r := redistest.Start(t)
	u := start(t, Options{Addr: r.Addr()})
	r.Kill()
	p := u.Acquire(Ask{ID: Identity{Proto: 2}})
	a := newAnswers()
	if err := p.Append(resp.AppendCommand(nil, "PING"), a, 0, 1); err == nil {
		p.Send()
		if got, want := a.next(t), "lost sent=false"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	} else if !errors.Is(err, stream.ErrDown) {
		t.Errorf("Append = %v", err)
	}
	p.Discard()
}

func TestNeedsAuthFollowsRedis(t *testing.T) {
	open, closed := redistest.Start(t), redistest.Start(t, "--requirepass", "secret")
	for _, c := range []struct {
		name string
		opts Options
		want bool
	}{
		{"open", Options{Addr: open.Addr()}, false},
		{"closed", Options{Addr: closed.Addr()}, true},
		{"closed, with the proxy's own password", Options{Addr: closed.Addr(), Password: "secret"}, true},
	} {
		u := start(t, c.opts)
		redistest.Eventually(t, 10*time.Second, c.name+" is ready", func() bool { ok, _ := u.Ready(); return ok })
		if got := u.NeedsAuth(); got != c.want {
			t.Errorf("%s: NeedsAuth = %v, want %v", c.name, got, c.want)
		}
	}
}

func TestIdentityNeverPrintsItsPassword(t *testing.T) {
	id := Identity{User: "u", Password: "hunter2", DB: 1, Proto: 3}
	for _, s := range []string{id.String(), fmt.Sprintf("%v %+v %#v %s", id, id, id, id)} {
		if strings.Contains(s, "hunter2") {
			t.Errorf("%q contains the password", s)
		}
	}
}

var update = flag.Bool("update", false, "rewrite snapshot.resp from the redis-server at hand")

// The snapshot is the answer of a real Redis; it is compared with the one at hand when that is of the same version.
func TestSnapshotIsRedisAnswer(t *testing.T) {
	r := redistest.Start(t)
	u := start(t, Options{Addr: r.Addr()})
	nc, err := u.dialer.Dial(t.Context(), dial.Target{At: topology.Any, ID: Identity{Proto: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b, err := u.dialer.Ask(nc, "COMMAND")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("commands/snapshot.resp", b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := commands.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got.All() {
		if s := commands.BuiltIn().Lookup(c.Name); s != nil && s.Flags != c.Flags {
			t.Errorf("%s: flags %b in the snapshot, %b in Redis", c.Name, s.Flags, c.Flags)
		}
	}
	for name, want := range map[string]commands.Flags{"blpop": commands.Blocking | commands.Changes, "get": 0, "wait": 0, "publish": commands.Changes, "eval": commands.Changes, "function": commands.Changes} {
		if got := got.Lookup(name).Flags &^ commands.NoMulti; got != want {
			t.Errorf("%s: flags %b, want %b", name, got, want)
		}
	}
	if got.Lookup("client").Subcommands["setname"] != 3 {
		t.Error("CLIENT SETNAME is not listed")
	}
}

func TestPasswordSetLaterHoldsForNewcomersOnly(t *testing.T) {
	r := redistest.Start(t)
	u := start(t, Options{Addr: r.Addr(), authPeriod: 10 * time.Millisecond})
	id := Identity{Proto: 2}
	before := u.Lane(id, topology.Any, nil, "", Reads)
	ask(t, before, "SET", "k", "v")
	pin := u.Acquire(Ask{ID: id})
	ask(t, pin, "PING")
	pin.Release()
	if got := ask(t, before, "CONFIG", "SET", "requirepass", "secret"); got != "+OK\r\n" {
		t.Fatalf("CONFIG SET = %q", got)
	}
	redistest.Eventually(t, 10*time.Second, "the password is noticed", u.NeedsAuth)
	redistest.Eventually(t, 10*time.Second, "no idle pin has the rights of before", func() bool {
		work, _ := u.Pins()
		return work.Idle == 0
	})
	after := u.Lane(id, topology.Any, nil, "", Reads)
	if got := ask(t, after, "GET", "k"); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("a newcomer's GET = %q, want -NOAUTH", got)
	}
	if got := ask(t, before, "GET", "k"); got != "$1\r\nv\r\n" {
		t.Errorf("GET of one who was there = %q: Redis leaves open connections alone", got)
	}
	u.Leave(before)
	u.Leave(after)
	redistest.Eventually(t, 10*time.Second, "the lane of before is closed", func() bool {
		return before.Append(resp.AppendCommand(nil, "PING"), newAnswers(), 0, 1) != nil
	})
}
