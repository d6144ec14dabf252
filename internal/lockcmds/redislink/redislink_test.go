package redislink

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

const patience = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type text string

func (s text) Text() string { return string(s) }

func (s text) SHA() string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// heard collects what a Listener is told.
type heard chan string

func (h heard) Confirmed(channel string)          { h <- "confirmed " + channel }
func (h heard) Published(channel, _ string)       { h <- "published " + channel }
func (h heard) Refused(channel string, _ Refusal) { h <- "refused " + channel }
func (h heard) want(t *testing.T, news ...string) {
	t.Helper()
	left := map[string]int{}
	for _, n := range news {
		left[n]++
	}
	for range news {
		select {
		case n := <-h:
			if left[n]--; left[n] < 0 {
				t.Fatalf("heard %q, want %q", n, news)
			}
		case <-time.After(patience):
			t.Fatalf("not heard all of %q", news)
		}
	}
}

// start runs a client until the test ends.
func start(t *testing.T, opts Options) (*Client, heard) {
	t.Helper()
	c := New(opts)
	h := make(heard, 100)
	c.Listen(h)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		c.Close()
	})
	return c, h
}

func TestScriptsAreSentWithTheirTextWhenRedisDoesNotKnowThem(t *testing.T) {
	srv := redistest.Start(t)
	c, _ := start(t, Options{Addr: srv.Addr()})
	s := text("return {1, KEYS[1], ARGV[1], false, {2}}")
	for range 2 {
		v, err := c.Node("k").Eval(t.Context(), s, []string{"k"}, []string{"a"})
		if err != nil || len(v.Elems) != 5 || v.Elems[0].Int != 1 || string(v.Elems[1].Str) != "k" || string(v.Elems[2].Str) != "a" || !v.Elems[3].Null {
			t.Fatalf("%+v, %v", v, err)
		}
		srv.Do(t, "SCRIPT", "FLUSH")
	}
	v, err := c.Eval(t.Context(), text("return redis.call('GET', KEYS[1], 'x')"), []string{"k"}, nil)
	if err != nil || !v.IsError() || !strings.HasPrefix(string(v.Str), "ERR Wrong number of args") {
		t.Errorf("an error reply: %+v, %v", v, err)
	}
	if v, err := c.Eval(t.Context(), text("return false"), nil, nil); err != nil || !v.Null {
		t.Errorf("null: %+v, %v", v, err)
	}
	if v, err := c.Eval(t.Context(), text("return 7"), nil, nil); err != nil || v.Kind != resp.Integer || v.Int != 7 {
		t.Errorf("7: %+v, %v", v, err)
	}
}

func TestErrorsSayWhetherAnythingWasSent(t *testing.T) {
	srv := redistest.Start(t)
	c, _ := start(t, Options{Addr: srv.Addr()})
	if _, err := c.Eval(t.Context(), text("return 1"), nil, nil); err != nil {
		t.Fatal(err)
	}
	srv.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Eval(ctx, text("return 1"), nil, nil); !errors.Is(err, ErrInDoubt) {
		t.Errorf("no answer in time: %v", err)
	}
	srv.Continue()
}

// A call that finds no connection says that it was not sent, whatever has become of the attempt to make one, and however
// many connections there have been before. A failure stands for further calls for a moment.
func TestACallWithoutAConnectionWasNotSent(t *testing.T) {
	srv := redistest.Start(t)
	fails := map[string]func(nc net.Conn){
		"closes":            func(nc net.Conn) { _ = nc.Close() },
		"refuses":           func(nc net.Conn) { _, _ = nc.Write([]byte("-WRONGPASS no\r\n")) },
		"is no Redis":       func(nc net.Conn) { _, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) },
		"does not answer":   func(net.Conn) {},
		"is not to be seen": nil,
	}
	for name, fail := range fails {
		t.Run(name, func(t *testing.T) {
			var dials atomic.Int32
			var broken atomic.Bool
			mended := make(chan struct{})
			c, h := start(t, Options{Addr: srv.Addr(), Dial: func(ctx context.Context) (net.Conn, error) {
				switch {
				case !broken.Load():
					return new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
				case dials.Add(1) > 0 && fail == nil:
					return nil, errors.New("away")
				}
				near, far := net.Pipe()
				go func() {
					if _, err := far.Read(make([]byte, 100)); err == nil {
						fail(far)
						<-mended
					}
					_ = far.Close()
				}()
				return near, nil
			}})
			c.Subscribe("a")
			h.want(t, "confirmed a")
			if _, err := c.Eval(t.Context(), text("return 1"), nil, nil); err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			srv.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			srv.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
			hangs, limit := name == "does not answer", patience
			if hangs {
				limit = 20 * time.Millisecond
			}
			eval := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, err := c.Eval(ctx, text("return 1"), nil, nil)
				return err
			}
			redistest.Eventually(t, patience, "the connection to be lost", func() bool { return errors.Is(eval(), ErrUnsent) })
			begin, before := time.Now(), dials.Load()
			for range 50 {
				if err := eval(); !errors.Is(err, ErrUnsent) {
					t.Fatal(err)
				}
			}
			// One for commands and one for subscriptions may begin together.
			if most := 2*int32(time.Since(begin)/dialPause) + 2; dials.Load()-before > most {
				t.Errorf("%d attempts to connect in %v", dials.Load()-before, time.Since(begin))
			}
			broken.Store(false)
			close(mended)
			h.want(t, "confirmed a")
			if _, err := c.Eval(t.Context(), text("return 1"), nil, nil); err != nil {
				t.Errorf("behind a new connection: %v", err)
			}
		})
	}
}

// A call does not wait for a connection beyond its own time, and does not end the attempt to connect of others.
func TestACallWaitsForAConnectionAsLongAsItMay(t *testing.T) {
	srv := redistest.Start(t)
	dialing, connect := make(chan struct{}, 1), make(chan struct{})
	c, _ := start(t, Options{Addr: srv.Addr(), Dial: func(ctx context.Context) (net.Conn, error) {
		select {
		case dialing <- struct{}{}:
		default:
		}
		select {
		case <-connect:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
	}})
	eval := func(ctx context.Context) error {
		_, err := c.Eval(ctx, text("return 1"), nil, nil)
		return err
	}
	first, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- eval(first) }()
	<-dialing
	go func() { ended <- eval(t.Context()) }()
	cancel()
	if err := <-ended; !errors.Is(err, ErrUnsent) || !errors.Is(err, context.Canceled) {
		t.Errorf("the call that has begun to connect: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := eval(short); !errors.Is(err, ErrUnsent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call with little time: %v", err)
	}
	close(connect)
	if err := <-ended; err != nil {
		t.Errorf("a call with more time: %v", err)
	}
}

// Run ends with its context, also while a server does not answer the handshake of a connection for subscriptions.
func TestRunEndsWhileRedisHangs(t *testing.T) {
	far := make(chan net.Conn, 10)
	c := New(Options{Addr: "unused:0", Dial: func(context.Context) (net.Conn, error) {
		near, other := net.Pipe()
		far <- other
		return near, nil
	}})
	t.Cleanup(c.Close)
	c.Listen(make(heard, 10))
	c.Subscribe("a")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	_, _ = (<-far).Read(make([]byte, 1)) // the handshake
	cancel()
	select {
	case <-ended:
	case <-time.After(AnswerLimit / 2):
		t.Error("Run goes on")
	}
}

// Close ends an attempt to connect, and calls that wait for an answer.
func TestCloseEndsCalls(t *testing.T) {
	srv := redistest.Start(t)
	connected := make(chan struct{}, 10)
	dial := func(ctx context.Context) (net.Conn, error) {
		connected <- struct{}{}
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
	}
	hang := func(ctx context.Context) (net.Conn, error) {
		connected <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, dial := range []func(ctx context.Context) (net.Conn, error){dial, hang} {
		c, _ := start(t, Options{Addr: srv.Addr(), Dial: dial})
		done := make(chan error, 1)
		go func() {
			_, err := c.Eval(t.Context(), text("while redis.call('GET', 'end') == false do end return 1"), nil, nil)
			done <- err
		}()
		select {
		case <-connected:
		case <-time.After(patience):
			t.Fatal("the call does not connect")
		}
		c.Close()
		select {
		case err := <-done:
			if !errors.Is(err, ErrUnsent) && !errors.Is(err, ErrInDoubt) {
				t.Error(err)
			}
		case <-time.After(AnswerLimit - time.Second):
			t.Fatal("the call waits for its answer")
		}
		if _, err := c.Eval(t.Context(), text("return 1"), nil, nil); !errors.Is(err, ErrUnsent) {
			t.Errorf("closed: %v", err)
		}
	}
}

func TestSubscriptionsAreKept(t *testing.T) {
	srv := redistest.Start(t)
	c, h := start(t, Options{Addr: srv.Addr()})
	c.Subscribe("a")
	c.Subscribe("b")
	h.want(t, "confirmed a", "confirmed b")
	srv.Do(t, "PUBLISH", "a", "0")
	srv.Do(t, "PUBLISH", "none", "0")
	srv.Do(t, "PUBLISH", "b", "0")
	h.want(t, "published a", "published b")
	c.Unsubscribe("b")
	c.Subscribe("c")
	h.want(t, "confirmed c") // after the command that gave b up, on one connection
	srv.Kill()
	srv.Restart()
	h.want(t, "confirmed a", "confirmed c")
	c.Subscribe("b")
	h.want(t, "confirmed b")
}

// Waiters come and go while the engine has no connection, and their sessions may have one.
func TestChangesAreNotCollectedWithoutAConnection(t *testing.T) {
	c := New(Options{Addr: "127.0.0.1:1"})
	defer c.Close()
	for range 10 {
		c.Subscribe("a")
		c.Unsubscribe("a")
	}
	if n := len(c.subs.todo); n != 0 {
		t.Errorf("%d changes are kept", n)
	}
}

func TestARefusedChannelIsGivenUp(t *testing.T) {
	srv := redistest.Start(t)
	srv.Do(t, "ACL", "SETUSER", "u", "on", ">pw", "~*", "+@all", "resetchannels", "&ours:*")
	c, h := start(t, Options{Addr: srv.Addr(), User: "u", Password: "pw"})
	c.Subscribe("theirs")
	c.Subscribe("ours:1")
	h.want(t, "refused theirs", "confirmed ours:1")
}

// A script that runs for long has Redis refuse everything else. Subscriptions outlast it, also if one of them ends or
// begins meanwhile.
func TestSubscriptionsOutlastABusyRedis(t *testing.T) {
	for _, change := range []func(c *Client){
		func(c *Client) { c.Unsubscribe("b") },
		func(c *Client) { c.Subscribe("c") },
	} {
		srv := redistest.Start(t, "--busy-reply-threshold", "1")
		dialed := make(chan struct{}, 1000)
		c, h := start(t, Options{Addr: srv.Addr(), Dial: func(ctx context.Context) (net.Conn, error) {
			dialed <- struct{}{}
			return new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
		}})
		c.Subscribe("a")
		c.Subscribe("b")
		h.want(t, "confirmed a", "confirmed b")
		for len(dialed) > 0 {
			<-dialed
		}
		other, done := srv.Client(t), make(chan error, 1)
		go func() { done <- srv.Client(t).Eval(context.Background(), "while true do end", nil).Err() }()
		redistest.Eventually(t, patience, "Redis to be busy", func() bool {
			err := other.Ping(t.Context()).Err()
			return err != nil && strings.HasPrefix(err.Error(), "BUSY")
		})
		change(c)
		select {
		case <-dialed: // the change is refused, and everything begins anew
		case got := <-h:
			t.Fatal(got)
		case <-time.After(patience):
			t.Fatal("the change is not refused")
		}
		if err := other.ScriptKill(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		<-done
		for got := ""; got != "confirmed a"; {
			select {
			case got = <-h:
			case <-time.After(patience):
				t.Fatal("the subscription does not begin anew")
			}
			if strings.HasPrefix(got, "refused") {
				t.Fatal(got)
			}
		}
	}
}
