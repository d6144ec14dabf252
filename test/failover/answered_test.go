package failover

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// The connection to Redis is cut at a lock command: Redis does not get it, gets it, gets it behind the rollback, or a
// failover forgets that it has got it. The client's connection closes without a reply. Within one lease of the call the
// lock is free, or held by a client that was told so, and no other grant is touched.

// lostCall is one lock command whose answer is lost.
type lostCall struct {
	name   string
	before []string // the commands of the client before it, all of which are answered
	call   string
	waits  bool // a client of the same proxy waits, to which the call may hand the lock over
	done   func(w *lostWorld) bool
}

// The holds of those calls that are sent once, or leave the client its lease, are short.
func lostCalls(named bool) []lostCall {
	lease := "PX 60000"
	if named { // its UNLOCK is sent once
		lease = "PX 3000"
	}
	held := func(w *lostWorld) bool { return w.exists() }
	free := func(w *lostWorld) bool { return !w.exists() }
	// A waiter that has an attempt on its way is not granted the lock by the release, but asks again.
	passed := func(w *lostWorld) bool { return w.dump() != w.was }
	return []lostCall{
		{"LOCK", nil, "LOCK $ PX 60000", false, held},
		{"TRYLOCK", nil, "TRYLOCK $ PX 60000", false, held},
		{"FAIRLOCK", nil, "FAIRLOCK $ PX 60000", false, held},
		{"re-entry", []string{"LOCK $ PX 3000"}, "LOCK $ PX 3000", false, held},
		{"UNLOCK", []string{"LOCK $ " + lease}, "UNLOCK $", false, free},
		{"UNLOCK of one of two", []string{"LOCK $ PX 3000", "LOCK $ PX 3000"}, "UNLOCK $", false, held},
		{"UNLOCK with a hand-over", []string{"LOCK $ " + lease}, "UNLOCK $", true, passed},
		{"EXTENDLOCK", []string{"LOCK $ PX 3000"}, "EXTENDLOCK $ PX 3000", false, held},
	}
}

// lostWorld is a proxy behind a relay, and another one beside it.
type lostWorld struct {
	t            *testing.T
	redis        *redistest.Server
	link         *redistest.Relay
	srv, another *proxytest.Proxy
	key          string
	was          string // what Redis had before the call
}

func (w *lostWorld) exists() bool { return w.redis.Do(w.t, "EXISTS", w.key) == int64(1) }

// dump is what Redis has.
func (w *lostWorld) dump() string {
	keys, _ := w.redis.Do(w.t, "KEYS", "*").([]any)
	var all []string
	for _, key := range keys {
		all = append(all, fmt.Sprint(key, w.redis.Do(w.t, "DUMP", key)))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// saved are all keys of Redis.
func (w *lostWorld) saved() (restore func()) {
	keys, _ := w.redis.Do(w.t, "KEYS", "*").([]any)
	var all [][]any
	for _, key := range keys {
		all = append(all, []any{"RESTORE", key, max(0, w.redis.Do(w.t, "PTTL", key).(int64)), w.redis.Do(w.t, "DUMP", key)})
	}
	return func() {
		w.redis.Do(w.t, "FLUSHALL")
		for _, args := range all {
			w.redis.Do(w.t, args...)
		}
	}
}

func TestALockCommandIsAnsweredOrItsConnectionCloses(t *testing.T) {
	t.Parallel()
	for owner, option := range map[string]string{"default": "", "named": " OWNER me", "permit": " LIMIT 1"} {
		for fate, name := range []string{"before", "after", "forgotten", "late"} {
			t.Run(owner+", "+name, func(t *testing.T) {
				t.Parallel()
				redis := redistest.Start(t)
				link := redistest.StartRelay(t, redis.Addr())
				w := lostWorld{
					redis: redis, link: link, another: proxytest.Start(t, redis),
					srv: proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Addr = link.Addr() }),
				}
				for i, c := range lostCalls(owner == "named") {
					if owner == "permit" && (c.name == "re-entry" || len(c.before) == 2) { // each acquire is a permit of its own
						continue
					}
					t.Run(c.name, func(t *testing.T) {
						w.t, w.key = t, fmt.Sprint("lock", i)
						w.play(c, strings.Replace(option, "me", fmt.Sprint("owner", i), 1), redistest.Fate(fate))
					})
				}
			})
		}
	}
}

// play plays one row of the table.
func (w *lostWorld) play(c lostCall, option string, fate redistest.Fate) {
	t := w.t
	limit := ""
	if strings.Contains(option, "LIMIT") {
		limit = option
	}
	line := func(text string) []string {
		if limit == "" || strings.Contains(text, "LOCK $") && text[0] != 'E' && text[0] != 'U' {
			text += option
		}
		return strings.Fields(strings.Replace(text, "$", w.key, 1))
	}
	var a *proxytest.Client
	proxytest.WaitFor(t, "the proxy to be connected", func() bool {
		a = w.srv.Dial(t)
		return a.Quiet("PING") == "+PONG\r\n"
	})
	mark := w.key // in the call, and in no other that is on its way then
	for _, before := range c.before {
		mark = strings.TrimSpace(a.Do(line(before)...)[1:])
	}
	if strings.Contains(option, "OWNER") {
		mark = strings.Fields(option)[1]
	}
	winner := w.another.Dial(t)
	ask := strings.Fields("LOCK " + w.key + " PX 60000" + limit)
	if c.waits {
		winner = w.srv.Dial(t)
		winner.Send(ask...)
		proxytest.WaitFor(t, "the waiter", func() bool {
			listens := w.redis.Do(t, "PUBSUB", "NUMSUB", "redisson_lock__channel:{"+w.key+"}").([]any)[1]
			return w.srv.Stats().Waiting == 1 && listens != int64(0)
		})
	}
	restore := w.saved()
	w.was = w.dump()
	w.link.CutAt(mark, fate)
	a.Send(line(c.call)...)
	a.Ends()
	if fate == redistest.HeardAlone {
		proxytest.WaitFor(t, "Redis to have carried the call out", func() bool { return c.done(w) })
		restore()
		w.link.Reset()
		w.link.Pass()
	}
	if c.waits {
		winner.Gets(":")
	} else {
		winner.Granted(ask...)
	}
	if fate == redistest.Late {
		w.link.Deliver()
	}
	winner.Script("UNLOCK "+w.key, ":1")
	proxytest.WaitFor(t, "the lock to be free", func() bool { return !w.exists() })
	if lost := w.another.Stats().Lost; lost["gone"]+lost["forced"] != 0 {
		t.Errorf("losses at the other proxy: %v", lost)
	}
}
