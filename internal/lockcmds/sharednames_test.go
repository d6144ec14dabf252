package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Redisson's rule gives "a" and "{a}" one channel and one queue, and makes the base channel of "{a}:j" that of the
// owner j who waits for "a". Each of these pairs waits here for two locks that are held elsewhere.
func TestLocksThatShareNamesWakeTheirOwnWaiters(t *testing.T) {
	p, q := twoProxies(t, onlyWhenTold)
	holder := q.session(2)
	for _, pair := range [][2]string{
		{"LOCK a", "LOCK {a}"},
		{"FAIRLOCK a", "FAIRLOCK {a}"},
		{"LOCK a", "FAIRLOCK {a}"},
		{"FAIRLOCK a", "LOCK {a}"},
		{"FAIRLOCK a OWNER j", "LOCK {a}:j"},
		{"LOCK a OWNER j", "LOCK {a}:j"},
		{"FAIRLOCK a OWNER j", "FAIRLOCK {a} OWNER j"},
		{"LOCK a OWNER j", "FAIRLOCK {a} OWNER j"},
	} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			for _, release := range [][2]int{{0, 1}, {1, 0}} {
				var keys, owners [2]string
				var waiters [2]*session
				for i, line := range pair {
					args := locktest.Words(line)
					keys[i] = string(args[1])
					if len(args) > 3 {
						owners[i] = " OWNER " + string(args[3])
					}
					holder.fence("LOCK " + keys[i])
				}
				for _, i := range order {
					waiters[i] = p.session(2)
					waiters[i].waits(pair[i])
				}
				p.awaitAttempts(keys[0])
				p.awaitAttempts(keys[1])
				for _, i := range release {
					holder.want("UNLOCK "+keys[i], ":1")
					fenceIn(t, waiters[i].reply()) // long before a lease ends
				}
				for i, w := range waiters {
					w.want("UNLOCK "+keys[i]+owners[i], ":1")
				}
			}
		}
	}
	if n := p.srv.Client(t).Exists(t.Context(), script.Queue("a"), locktest.NamesOf("a").Deadlines).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}

// A lock of nothing but braces shares its names with no other lock.
func TestWaitersForLocksOfBracesAreWoken(t *testing.T) {
	p, q := twoProxies(t, onlyWhenTold)
	for _, key := range []string{"{", "}", "{}", "{}}", "}{", "{{}}", "{}{}", "{\x00}"} {
		for _, verb := range []string{"FAIRLOCK", "LOCK"} {
			holder := q.session(2)
			holder.fence("LOCK " + key)
			for _, at := range []*proxy{p, q} {
				w := at.session(2)
				w.waits(verb + " " + key)
				at.awaitAttempts(key)
				holder.want("UNLOCK "+key, ":1")
				fenceIn(t, w.reply()) // long before the place counts as dead
				holder = w
			}
			holder.want("UNLOCK "+key, ":1")
			if n := p.srv.Client(t).Exists(t.Context(), script.Queue(key), locktest.NamesOf(key).Deadlines).Val(); n != 0 {
				t.Errorf("%s %q: %d keys left", verb, key, n)
			}
		}
	}
}

// A waiter is not the head of a lock that it does not wait for, though it stands in the same queue.
func TestQueuesThatShareAKeyDoNotJudgeEachOther(t *testing.T) {
	for _, pair := range [][2]string{{"a", "{a}"}, {"{a}", "a"}} {
		t.Run(pair[0], func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p, q := startProxy(t, srv, func(o *Options) { o.staleHead = 10 * time.Millisecond }), startProxy(t, srv, nil)
			free, held := pair[0], pair[1]
			holder, first := q.session(2), q.session(2)
			holder.fence("LOCK " + held)
			first.waits("FAIRLOCK " + held)
			place := srv.Client(t).LRange(t.Context(), script.Queue("a"), 0, -1).Val()
			for range 3 { // free, though the first in the queue waits
				w := p.session(2)
				start := time.Now()
				fence := w.fence("FAIRLOCK " + free)
				next := p.session(2)
				next.waits("FAIRLOCK " + free)
				w.want("UNLOCK "+free+" FENCE "+itoa(fence), ":1")
				fenceIn(t, next.reply())
				next.want("UNLOCK "+free, ":1")
				if took := time.Since(start); took > table.MaxLooks*table.LookAgain { // by then the other waiter has been taken for dead
					t.Errorf("granted after %v", took)
				}
			}
			first.quiet((table.MaxLooks + 1) * table.LookAgain / 4)
			equal(t, "queue", srv.Client(t).LRange(t.Context(), script.Queue("a"), 0, -1).Val(), place)
			holder.want("UNLOCK "+held, ":1")
			fenceIn(t, first.reply())
		})
	}
}

// One rule for the waiters of one owner, wherever they wait: when the owner is granted the lock, all of them are.
func TestWaitersOfOneOwnerAreLetInTogether(t *testing.T) {
	p, q := twoProxies(t, onlyWhenTold)
	for _, at := range [][]*proxy{{p, p}, {p, q}} {
		for _, verbs := range [][]string{{"LOCK", "LOCK"}, {"FAIRLOCK", "FAIRLOCK"}, {"LOCK", "FAIRLOCK"}, {"FAIRLOCK", "LOCK"}} {
			for _, unlock := range at {
				holder := unlock.session(2)
				holder.fence("LOCK k")
				var waiters []*session
				for i, verb := range append(verbs, verbs...) {
					w := at[i%len(at)].session(2)
					w.waits(verb + " k OWNER job")
					waiters = append(waiters, w)
					at[i%len(at)].awaitAttempts("k")
				}
				holder.want("UNLOCK k", ":1")
				fence := fenceIn(t, waiters[0].reply())
				for _, w := range waiters[1:] {
					if got := fenceIn(t, w.reply()); got != fence {
						t.Errorf("%v: fence %d, want %d", verbs, got, fence)
					}
				}
				for i := range waiters {
					waiters[i].want("UNLOCK k OWNER job", ":"+itoa(int64(min(1, max(0, i-len(waiters)+2)))))
				}
			}
		}
	}
}

// Nor need it be a waiter that is granted.
func TestNewcomerLetsInTheWaitersOfItsOwner(t *testing.T) {
	p, q := twoProxies(t, onlyWhenTold)
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		p.srv.Do(t, "HSET", "k", "somebody", "1")
		p.srv.Do(t, "PEXPIRE", "k", "60000")
		waiter, newcomer := p.session(2), q.session(2)
		waiter.waits(verb + " k OWNER job")
		p.awaitAttempts("k")
		p.srv.Do(t, "DEL", "k") // tells nobody
		fence := newcomer.fence(verb + " k OWNER job")
		equal(t, verb, fenceIn(t, waiter.reply()), fence)
		newcomer.want("UNLOCK k OWNER job", ":0")
		newcomer.want("UNLOCK k OWNER job", ":1")
	}
}
