//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// limit bounds what a client in this process may wait for.
const limit = 10 * time.Second

// session is one connection of a Go client, and so one owner of locks.
type session interface {
	// command returns nil, an int64, a string, a list or a map of these, or an error: Redis's for an error reply.
	command(ctx context.Context, words ...string) (any, error)
	// pipeline sends all before it reads; an error reply is an element of the list.
	pipeline(ctx context.Context, commands [][]string) []any
	close()
}

// library is a Go client. open connects to redis://host:port; the session is closed when t ends at the latest.
type library struct {
	open func(t *testing.T, url string) session
	own  map[string]func(t *testing.T, url string) // claims by the library's own calls
}

// claim runs all claims of a Go client.
func (l library) claim(t *testing.T, at redistest.Place) {
	s := newStand(t, at)
	direct, url := "redis://"+s.direct.Addr(), "redis://"+s.proxy
	operations := writeOperations(t)
	c := client{open: l.open, url: url}
	all := map[string]func(t *testing.T){
		"connect":      c.connect,
		"pipeline":     c.pipeline,
		"blocking-pop": c.pops,
		"script":       c.scripts,
		"mixed":        func(t *testing.T) { compare(t, operations, l.open(t, url), l.open(t, direct)) },
		"lock":         c.lock,
		"lock-reentry": c.reentry,
		"lock-busy":    c.busy,
		"lock-wait":    c.waits,
		"lock-fair":    c.fair,
		"lock-hangup":  c.hangup,
		"lock-lost":    c.lost,
		"lock-owner":   c.owner,
	}
	for name, own := range l.own {
		shared := all[name]
		all[name] = func(t *testing.T) {
			if shared != nil {
				shared(t)
			}
			own(t, url)
		}
	}
	for _, name := range claims {
		if all[name] == nil {
			t.Errorf("nobody proves the claim %s", name)
			continue
		}
		t.Run(name, all[name])
	}
}

// compare runs the operations through the proxy and directly. Half of them are sent one by one, the others 50 at a time.
func compare(t *testing.T, operations string, proxied, direct session) {
	b, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	var commands [][]string
	if err := json.Unmarshal(b, &commands); err != nil {
		t.Fatal(err)
	}
	half := len(commands) / 2
	for i, command := range commands[:half] {
		got, want := outcome(proxied.command(t.Context(), command...)), outcome(direct.command(t.Context(), command...))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("operation %d %.200q (-direct +proxy):\n%s", i, command, diff)
		}
	}
	for start := half; start < len(commands); start += 50 {
		some := commands[start:min(start+50, len(commands))]
		got, want := proxied.pipeline(t.Context(), some), direct.pipeline(t.Context(), some)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("in the pipeline at %d (-direct +proxy):\n%s", start, diff)
		}
	}
}

// outcome makes an error reply comparable with another.
func outcome(reply any, err error) any {
	if err != nil {
		return "error " + err.Error()
	}
	return reply
}

// client opens connections whose claims need no call of the library but the two of session.
type client struct {
	open func(t *testing.T, url string) session
	url  string
}

// do returns the reply, which must not be an error.
func do(t *testing.T, s session, words ...string) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	reply, err := s.command(ctx, words...)
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return reply
}

// fence returns the reply as a fencing token, which must be larger than the one before.
func fence(t *testing.T, reply any, before int64) int64 {
	t.Helper()
	n, ok := reply.(int64)
	if !ok || n <= before {
		t.Fatalf("got %v (%[1]T), want a fence larger than %d", reply, before)
	}
	return n
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
}

// refused checks that the reply is an error that starts with the text, not counting the code ERR: rueidis takes it off.
func refused(t *testing.T, text string, s session, words ...string) {
	t.Helper()
	reply, err := s.command(t.Context(), words...)
	if err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), "ERR "), text) {
		t.Fatalf("%v: got %v and error %v, want error %s", words, reply, err, text)
	}
}

// request is a command that waits on a session of its own.
type request struct {
	session session
	ended   chan struct{} // closed when reply and err are set
	reply   any
	err     error
}

func (c client) request(t *testing.T, words ...string) *request {
	t.Helper()
	r := &request{session: c.open(t, c.url), ended: make(chan struct{})}
	do(t, r.session, "PING")
	go r.run(t.Context(), words)
	return r
}

func (r *request) run(ctx context.Context, words []string) {
	defer close(r.ended)
	r.reply, r.err = r.session.command(ctx, words...)
}

func (r *request) stillWaits(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-r.ended:
		t.Fatalf("did not wait: %v %v", r.reply, r.err)
	case <-time.After(d):
	}
}

func (r *request) result(t *testing.T) any {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(limit):
		t.Fatal("waited in vain for the reply")
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.reply
}

func (c client) connect(t *testing.T) {
	s := c.open(t, c.url)
	equal(t, do(t, s, "PING"), "PONG")
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for key, value := range map[string]string{"bytes": string(every), "big": strings.Repeat("0123456789abcdef", 65536)} {
		equal(t, do(t, s, "SET", key, value), "OK")
		equal(t, do(t, s, "GET", key), value)
	}
	equal(t, do(t, s, "GET", "none"), nil)
}

func (c client) pipeline(t *testing.T) {
	var commands [][]string
	var want []any
	for i := range 1000 {
		key, value := fmt.Sprint("p:", i), strconv.Itoa(i)
		commands, want = append(commands, []string{"SET", key, value}, []string{"GET", key}), append(want, "OK", value)
	}
	commands = append(commands, []string{"LPUSH", "p:499", "x"})
	got := c.open(t, c.url).pipeline(t.Context(), commands)
	equal(t, got[:2000], want)
	if text := fmt.Sprint(got[2000]); !strings.Contains(text, "WRONGTYPE") {
		t.Errorf("LPUSH to a string: %q", text)
	}
}

func (c client) pops(t *testing.T) {
	s := c.open(t, c.url)
	popped := c.request(t, "BLPOP", "queue", "0")
	popped.stillWaits(t, 100*time.Millisecond)
	do(t, s, "RPUSH", "queue", "job")
	equal(t, popped.result(t), []any{"queue", "job"})
	equal(t, do(t, s, "BLPOP", "queue", "0.1"), nil)
}

func (c client) scripts(t *testing.T) {
	s := c.open(t, c.url)
	const double = "return redis.call('INCRBY', KEYS[1], ARGV[1] * 2)"
	equal(t, do(t, s, "EVAL", double, "1", "s", "4"), int64(8))
	sha := do(t, s, "SCRIPT", "LOAD", double).(string)
	equal(t, do(t, s, "EVALSHA", sha, "1", "s", "1"), int64(10))
	equal(t, do(t, s, "SCRIPT", "FLUSH"), "OK")
	refused(t, "NOSCRIPT", s, "EVALSHA", sha, "1", "s", "1")
}

func (c client) lock(t *testing.T) {
	s := c.open(t, c.url)
	var last int64
	for _, verb := range []string{"LOCK", "TRYLOCK", "FAIRLOCK"} {
		last = fence(t, do(t, s, verb, "a", "WAIT", "1000"), last)
		equal(t, do(t, s, "UNLOCK", "a"), int64(1))
	}
	last = fence(t, do(t, s, "LOCK", "a", "PX", "5000"), last)
	equal(t, do(t, s, "UNLOCK", "a", "FENCE", fmt.Sprint(last)), int64(1))
	refused(t, "syntax error", s, "LOCK", "a", "PX", "1", "EX", "1")
}

func (c client) reentry(t *testing.T) {
	s := c.open(t, c.url)
	first := fence(t, do(t, s, "LOCK", "b"), 0)
	equal(t, do(t, s, "LOCK", "b", "WAIT", "50"), nil)
	refused(t, "this connection has asked", s, "UNLOCK", "b")
	equal(t, do(t, s, "UNLOCK", "b", "FENCE", strconv.FormatInt(first, 10)), int64(1))
	named := do(t, s, "LOCK", "b", "OWNER", "job-9")
	equal(t, do(t, s, "LOCK", "b", "OWNER", "job-9"), named)
	equal(t, do(t, s, "UNLOCK", "b", "OWNER", "job-9"), int64(0))
	equal(t, do(t, s, "UNLOCK", "b", "OWNER", "job-9"), int64(1))
	refused(t, "NOTHELD", s, "UNLOCK", "b", "OWNER", "job-9")
}

func (c client) busy(t *testing.T) {
	holder, other := c.open(t, c.url), c.open(t, c.url)
	do(t, holder, "LOCK", "c")
	equal(t, do(t, other, "TRYLOCK", "c"), nil)
	equal(t, do(t, other, "LOCK", "c", "WAIT", "50"), nil)
	refused(t, "NOTHELD", other, "UNLOCK", "c")
	equal(t, do(t, holder, "UNLOCK", "c"), int64(1))
}

func (c client) waits(t *testing.T) {
	holder := c.open(t, c.url)
	first := fence(t, do(t, holder, "LOCK", "d"), 0)
	waiting := c.request(t, "LOCK", "d")
	waiting.stillWaits(t, 100*time.Millisecond)
	equal(t, do(t, holder, "UNLOCK", "d"), int64(1))
	fence(t, waiting.result(t), first)
}

func (c client) fair(t *testing.T) {
	holder := c.open(t, c.url)
	last := fence(t, do(t, holder, "FAIRLOCK", "e"), 0)
	var waiting []*request
	for n := int64(1); n <= 3; n++ {
		waiting = append(waiting, c.request(t, "FAIRLOCK", "e"))
		redistest.Eventually(t, limit, "the waiter to be in the queue", func() bool {
			return do(t, holder, "LLEN", "redisson_lock_queue:{e}") == n
		})
	}
	equal(t, do(t, holder, "UNLOCK", "e"), int64(1))
	for i, w := range waiting {
		last = fence(t, w.result(t), last)
		for _, later := range waiting[i+1:] {
			later.stillWaits(t, 20*time.Millisecond)
		}
		equal(t, do(t, w.session, "UNLOCK", "e"), int64(1))
	}
}

func (c client) hangup(t *testing.T) {
	holder := c.open(t, c.url)
	do(t, holder, "LOCK", "f", "GRACE", "0")
	waiting := c.request(t, "LOCK", "f")
	waiting.stillWaits(t, 100*time.Millisecond)
	holder.close()
	fence(t, waiting.result(t), 0)
}

func (c client) lost(t *testing.T) {
	s := c.open(t, c.url)
	do(t, s, "LOCK", "g", "PX", "1000")
	redistest.Eventually(t, limit, "the lease to end", func() bool { return do(t, s, "EXISTS", "g") == int64(0) })
	refused(t, "LOSTLEASE", s, "UNLOCK", "g")
	do(t, s, "LOCK", "h")
	do(t, s, "DEL", "h")
	refused(t, "LOSTLEASE", s, "UNLOCK", "h")
}

func (c client) owner(t *testing.T) {
	one, other := c.open(t, c.url), c.open(t, c.url)
	do(t, one, "LOCK", "i", "OWNER", "job-7")
	refused(t, "NOTHELD", other, "UNLOCK", "i", "OWNER", "job-8")
	equal(t, do(t, other, "UNLOCK", "i", "OWNER", "job-7"), int64(1))
}
