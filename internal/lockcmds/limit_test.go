package lockcmds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestAtMostNHoldALock(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	a, b, c := p.session(2), q.session(2), q.session(2)
	first, second := a.fence("LOCK k LIMIT 3"), b.fence("TRYLOCK k LIMIT 3")
	third := a.fence("FAIRLOCK k LIMIT 3") // one more, not the same again
	if second <= first || third <= second {
		t.Errorf("fences %d, %d, %d", first, second, third)
	}
	for _, line := range []string{"TRYLOCK k LIMIT 3", "LOCK k LIMIT 2 WAIT 1", "FAIRLOCK k LIMIT 3 WAIT 1"} {
		c.want(line, "(nil)")
	}
	q.cleanedUp()                          // its place in the queue is gone
	fourth := c.fence("TRYLOCK k LIMIT 4") // the limit is that of the call
	c.want("UNLOCK k FENCE "+itoa(third+1), "-NOTHELD the lock is not held with this fence")
	b.want("UNLOCK k FENCE "+itoa(third), ":1") // on any connection, through any proxy
	redistest.Eventually(t, patience, "its proxy to be told", func() bool { return p.e.Holds() == 1 })
	a.want("UNLOCK k FENCE "+itoa(first), ":1")
	a.want("UNLOCK k", notHeldWords)
	c.want("UNLOCK k FENCE "+itoa(fourth), ":1")
	c.want("UNLOCK k FENCE "+itoa(fourth), "-NOTHELD the lock is not held with this fence")
	a.want("TRYLOCK k LIMIT 1", "(nil)")
	b.want("UNLOCK k", ":1")
	a.fence("TRYLOCK k LIMIT 1")
	a.want("UNLOCK k", ":1")
	empty(t, p.srv)
}

func TestUnlockGivesTheOldestPermitBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, b := startProxy(t, srv, nil).session(2), startProxy(t, srv, nil).session(2)
	var fences []int64
	for range 4 {
		fences = append(fences, a.fence("LOCK k LIMIT 9"))
	}
	left := func() (n int) {
		info := b.do("LOCKINFO k")
		for _, f := range fences {
			n = 2*n + strings.Count(info, "fence :"+itoa(f)+"]")
		}
		return n
	}
	a.want("UNLOCK k", ":1")
	equal(t, "permits", left(), 0b0111)
	a.want("UNLOCK k FENCE "+itoa(fences[2]), ":1")
	equal(t, "permits", left(), 0b0101)
	a.send("UNLOCK k") // on their way together
	a.send("UNLOCK k")
	a.send("UNLOCK k")
	for _, want := range []string{":1", ":1", notHeldWords} {
		equal(t, "reply", a.reply(), want)
	}
	empty(t, srv)
}

func TestPermitsOfANamedOwner(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	a, b, c := p.session(2), p.session(2), q.session(2)
	first, second, third := a.fence("LOCK k LIMIT 3 OWNER x"), b.fence("LOCK k LIMIT 3 OWNER x"), c.fence("LOCK k LIMIT 3 OWNER x")
	a.want("TRYLOCK k LIMIT 3 OWNER x", "(nil)")
	b.want("UNLOCK k OWNER x", ":1") // its own, though a's is older
	c.want("UNLOCK k OWNER x FENCE "+itoa(first), ":1")
	if info := c.do("LOCKINFO k"); strings.Contains(info, itoa(second)) || strings.Contains(info, itoa(first)) || !strings.Contains(info, itoa(third)) {
		t.Errorf("LOCKINFO: %s", info)
	}
	b.want("UNLOCK k OWNER y", "-NOTHELD this OWNER does not hold the lock")
	redistest.Eventually(t, patience, "the proxy to know that another one has released it", func() bool { return p.e.Holds() == 0 })
	a.want("UNLOCK k OWNER x", ":1") // that of the other proxy
	empty(t, p.srv)
}

// However many permits and shared holders a lock has, a command about one grant, or about none, reads a few of them.
func TestACommandAboutOneGrantReadsNoCrowd(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, func(o *Options) { o.Lease = time.Hour }) // no renewal is counted
	a, b := p.session(2), q.session(2)
	const crowd = 300
	var fences [2][]string
	for i := range crowd {
		fences[0] = append(fences[0], itoa(a.fence(fmt.Sprintf("LOCK p LIMIT 999 OWNER o%d", i))))
		fences[1] = append(fences[1], itoa(a.fence(fmt.Sprintf("LOCK s SHARED PX 60000 OWNER o%d", i))))
	}
	a.fence("LOCK s SHARED PX 3600000")
	all := func() int { return callsOf(t, p.srv, "hgetall") }
	for i, line := range []string{
		"UNLOCK p", "UNLOCK p OWNER x", "UNLOCK p OWNER o1", "EXTENDLOCK p PX 1000", "EXTENDLOCK p PX 1000 OWNER x",
		"EXTENDLOCK p PX 60000 OWNER o2", "UNLOCK p FENCE " + fences[0][3], "LOCK p LIMIT 999", "UNLOCK p", "UNLOCK s", "UNLOCK s SHARED OWNER x",
		"UNLOCK s SHARED OWNER o1", "EXTENDLOCK s PX 1000", "EXTENDLOCK s PX 60000 SHARED OWNER o2", "UNLOCK s FENCE " + fences[1][3], "TRYLOCK s",
		"FAIRLOCK s WAIT 0", "LOCK s SHARED OWNER y", "UNLOCK s OWNER y", "FORCEUNLOCK s OWNER o4",
	} {
		before, calls, held := all(), commandCalls(t, p.srv), p.e.Holds()
		got := b.do(line)
		if strings.HasPrefix(line, "UNLOCK p FENCE") { // its proxy asks about the grant
			redistest.Eventually(t, patience, "its proxy to be told", func() bool { return p.e.Holds() < held })
		}
		if n := all() - before; n > 0 || commandCalls(t, p.srv)-calls > crowd {
			t.Errorf("%d: %s (%s) reads all %d times, in %d calls", i, line, got, n, commandCalls(t, p.srv)-calls)
		}
	}
	before := all()
	a.want("UNLOCK s", ":1") // its lease was the longest
	if all() > before {
		t.Error("the holder with the longest lease reads all others as it leaves")
	}
	if got := strings.Count(b.do("LOCKINFO p"), "owner "); got < crowd-3 {
		t.Errorf("LOCKINFO shows %d of them", got)
	}
}

const wrongType = "-WRONGTYPE Operation against a key holding the wrong kind of value"

// What a client waits for has become another type: it does not wait for the end of that.
func TestAWaiterLeavesAKeyOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"LOCK k", "FAIRLOCK k", "LOCK k SHARED", "LOCK k LIMIT 1", "FAIRLOCK k LIMIT 1"} {
		p := startProxy(t, redistest.Start(t), onlyWhenTold)
		holder, first, second := p.session(2), p.session(2), p.session(2)
		holder.fence(strings.Replace(strings.Replace(line, "FAIR", "", 1), " SHARED", "", 1))
		for _, w := range []*session{first, second} {
			w.waits(line)
			redistest.Eventually(t, patience, "it to hear of releases", func() bool { return p.settled("k") })
		}
		if p.srv.Do(t, "DEL", "k"); strings.Contains(line, "LIMIT") {
			p.srv.Do(t, "HSET", "k", "o", "1", "mode", "lock", "fence", "7")
		} else {
			p.srv.Do(t, "SET", "k", "2")
		}
		p.srv.Do(t, "PUBLISH", "redisson_lock__channel:{k}", "0")
		for _, w := range []*session{first, second} {
			if got := w.reply(); got != wrongType {
				t.Errorf("%s: %s", line, got)
			}
		}
		p.srv.Do(t, "DEL", "k", "{k}:timeout", "{k}:permits")
		first.fence(line)
	}
}

// While one permit after the other is taken and comes back, a client with a smaller limit gets one.
func TestPermitsDoNotStarveOtherWaiters(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		p, q := twoProxies(t, nil)
		first, other := p.session(2), p.session(2)
		first.fence("LOCK k LIMIT 3")
		other.waits(verb + " k LIMIT 1")
		redistest.Eventually(t, patience, "its place", func() bool {
			if verb == "LOCK" { // it has none, and need not: it is the first at its proxy
				return p.settled("k")
			}
			return p.srv.Client(t).LLen(t.Context(), "redisson_lock_queue:{k}").Val() == 1
		})
		later := []*session{q.session(2), q.session(2)}
		if verb == "LOCK" {
			later = nil
		} else {
			later[0].want("TRYLOCK k LIMIT 3", "(nil)")
		}
		for _, s := range later {
			s.waits("LOCK k LIMIT 3")
		}
		first.want("UNLOCK k", ":1")
		fenceIn(t, other.reply())
		other.want("UNLOCK k", ":1")
		for _, s := range later {
			fenceIn(t, s.reply())
			s.want("UNLOCK k", ":1")
		}
		empty(t, p.srv)
	}
}

func TestOneHoldOfSeveralEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	for _, c := range []struct{ holds, waits string }{{" LIMIT 2", " LIMIT 1"}, {" SHARED", ""}} {
		a, b, w := p.session(2), p.session(2), q.session(2)
		a.fence("LOCK k GRACE 0" + c.holds)
		b.fence("LOCK k GRACE 200 OWNER x" + c.holds)
		w.waits("LOCK k" + c.waits)
		a.hangUp()
		w.quiet(50 * time.Millisecond)
		b.hangUp()
		fenceIn(t, w.reply())
		w.want("UNLOCK k", ":1")
		empty(t, p.srv)
	}
}

func TestLostPermitsAreToldOneByOne(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	a, b, d := p.session(3), q.session(3), q.session(2)
	var fences []string
	for range 4 {
		fences = append(fences, itoa(a.fence("LOCK k LIMIT 9")))
	}
	other := itoa(b.fence("LOCK k LIMIT 9 OWNER x"))
	info := d.do("LOCKINFO k")
	for _, want := range []string{"mode limit limit :9 holders *[*[owner ", "fence :" + fences[0] + " fair", "fence :" + fences[3] + "]", "owner x holds :1"} {
		if !strings.Contains(info, want) {
			t.Errorf("LOCKINFO: %s, want %s", info, want)
		}
	}
	if list := a.do("LOCKLIST"); strings.Count(list, "mode limit") != 4 {
		t.Errorf("LOCKLIST: %s", list)
	}
	d.want("FORCEUNLOCK k OWNER x", ":1")
	equal(t, "push", b.push(), ">[lock-lost k :"+other+" forced]")
	d.want("FORCEUNLOCK k", ":1")
	for range fences {
		if push := a.push(); !strings.HasPrefix(push, ">[lock-lost k :") || !strings.HasSuffix(push, " forced]") {
			t.Errorf("push %s", push)
		}
	}
	d.want("FORCEUNLOCK k", ":0")
	later := itoa(a.fence("LOCK k LIMIT 1"))
	a.want("UNLOCK k FENCE "+fences[1], lostLeaseWords)
	a.want("EXTENDLOCK k PX 1000 FENCE "+fences[2], lostLeaseWords)
	a.want("UNLOCK k FENCE "+later, ":1") // a release of another one hides no loss
	a.want("UNLOCK k", lostLeaseWords)
	a.want("UNLOCK k", lostLeaseWords)
	a.want("UNLOCK k", notHeldWords)
	empty(t, p.srv)
}

func TestExtendLockOfAPermit(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b, c := p.session(2), p.session(2), p.session(2)
	first, second := a.fence("LOCK k LIMIT 2 PX 60000"), a.fence("LOCK k LIMIT 2 PX 60000")
	c.waits("LOCK k LIMIT 2")
	b.want("EXTENDLOCK k PX 100 FENCE "+itoa(second), ":1") // on any connection of the proxy
	fenceIn(t, c.reply())                                   // it is told that the lease ends earlier
	c.waits("LOCK k LIMIT 2")
	a.want("EXTENDLOCK k PX 100", ":1")
	fenceIn(t, c.reply())
	a.want("UNLOCK k FENCE "+itoa(first), lostLeaseWords)
	c.want("UNLOCK k", ":1")
	c.want("UNLOCK k", ":1")
	empty(t, p.srv)
}

// A session that has extended a permit of another one ends: it takes back only what it has acquired.
func TestTheEndOfASessionTakesNoPermitOfAnother(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	for _, kind := range []string{" LIMIT 1", " SHARED", ""} {
		for _, owner := range []string{"", " OWNER me"} {
			a, b, c := p.session(3), p.session(2), p.session(2)
			fence := itoa(a.fence("LOCK k" + kind + owner + " GRACE 0"))
			b.want("EXTENDLOCK k PX 60000 FENCE "+fence, ":1")
			if owner != "" {
				b.want("EXTENDLOCK k PX 60000 FENCE "+fence+owner, ":1")
			}
			b.hangUp()
			p.cleanedUp()
			other := " LIMIT 1"
			if kind != other {
				other = ""
			}
			c.want("TRYLOCK k"+other, "(nil)")
			a.want("UNLOCK k FENCE "+fence+owner, ":1")
			c.hangUp()
			a.hangUp()
		}
	}
	empty(t, p.srv)
}

// A value of another program is never touched, and a permit ends when its string is deleted or overwritten.
func TestOtherValuesAtTheKeyOfALimit(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 600 * time.Millisecond })
	a, b := p.session(2), p.session(3)
	srv.Do(t, "SET", "text", "seven")
	srv.Do(t, "SET", "number", "7")
	srv.Do(t, "SET", "large", "1795771638165657123") // more than a count, and than a script can add to
	srv.Do(t, "RPUSH", "list", "7")
	srv.Do(t, "SET", "{zset}:timeout", "7")
	srv.Do(t, "SET", "{hash}:permits", "7")
	b.fence("LOCK {held}:permits")
	before := srv.Do(t, "DUMP", "text")
	for _, line := range []string{
		"LOCK text LIMIT 2", "LOCK large LIMIT 2", "LOCK list LIMIT 2", "FAIRLOCK text LIMIT 2", "LOCK zset LIMIT 2", "LOCK hash LIMIT 2", "LOCK held LIMIT 2",
		"LOCK number", "LOCK number SHARED", "FAIRLOCK number", "UNLOCK text", "EXTENDLOCK text PX 10", "FORCEUNLOCK text", "LOCKINFO text",
	} {
		if got := a.do(line); !strings.Contains(got, "WRONGTYPE ") {
			t.Errorf("%s: %s", line, got)
		}
	}
	for line, want := range map[string]string{ // it could be a semaphore of Redisson's
		"UNLOCK number": notHeldWords, "EXTENDLOCK number PX 10": notHeldWords, "FORCEUNLOCK number": ":0", "LOCKINFO number": "(nil)",
	} {
		a.want(line, want)
	}
	b.want("UNLOCK {held}:permits", ":1")
	equal(t, "text", srv.Do(t, "DUMP", "text"), before)
	equal(t, "number", srv.Do(t, "GET", "number"), any("7"))
	equal(t, "large", srv.Do(t, "GET", "large"), any("1795771638165657123"))
	for _, damage := range [][]any{{"DEL", "k"}, {"SET", "k", "text"}, {"DEL", "{k}:timeout"}, {"DEL", "{k}:permits"}} {
		fence := b.fence("LOCK k LIMIT 2")
		srv.Do(t, damage...)
		equal(t, fmt.Sprint("push after ", damage), b.push(), ">[lock-lost k :"+itoa(fence)+" gone]")
		b.want("UNLOCK k", lostLeaseWords)
		srv.Do(t, "DEL", "k", "{k}:timeout", "{k}:permits")
	}
}

// A key that was deleted is free at once for all kinds of locks, as a lock that one client holds.
func TestADeletedKeyHasNoPermits(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	other := itoa(b.fence("LOCK {k} LIMIT 9 PX 60000")) // it has its lease in the same zset
	lost := itoa(a.fence("LOCK k LIMIT 3 PX 60000"))
	p.srv.Do(t, "DEL", "k")
	a.fence("TRYLOCK k LIMIT 2")
	a.want("UNLOCK k FENCE "+lost, lostLeaseWords)
	a.want("UNLOCK k", ":1")
	b.want("UNLOCK {k} FENCE "+other, ":1")
}

// The locks "a" and "{a}" share the zset by Redisson's rule.
func TestLimitsOfLocksThatShareNames(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	for _, keys := range [][2]string{{"a", "{a}"}, {"{a}", "a"}, {"{", "}"}, {"x{y}z", "y"}} {
		a, b := p.session(2), p.session(2)
		fence := itoa(a.fence("LOCK " + keys[0] + " LIMIT 9"))
		b.fence("LOCK " + keys[1] + " LIMIT 9")
		a.want("UNLOCK "+keys[1]+" FENCE "+fence, "-NOTHELD the lock is not held with this fence")
		a.want("UNLOCK "+keys[0]+" FENCE "+fence, ":1")
		b.want("TRYLOCK "+keys[1], wrongType)
		b.want("UNLOCK "+keys[1], ":1")
		b.fence("LOCK " + keys[1])
		b.want("UNLOCK "+keys[1], ":1")
		p.srv.Do(t, "DEL", keys[0]) // else it stays until the lease would have ended
		empty(t, p.srv)
	}
}

// semaphore plays a client of Redisson's permit semaphore from the description of its scripts.
type semaphore struct{ *redisson }

func (r semaphore) names() []string {
	return []string{r.key, "{" + r.key + "}:timeout", "redisson_sc:{" + r.key + "}"}
}

func (r semaphore) setPermits(n int) any {
	r.t.Helper()
	return r.eval(`
		if redis.call('get', KEYS[1]) == false then
			redis.call('set', KEYS[1], ARGV[1])
			redis.call('publish', KEYS[3], ARGV[1])
			return 1
		end
		return 0`, r.names(), n)
}

const dropEnded = `
	local expired = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, ARGV[2])
	if #expired > 0 then
		redis.call('zrem', KEYS[2], unpack(expired))
		local value = redis.call('incrby', KEYS[1], #expired)
		if tonumber(value) > 0 then redis.call('publish', KEYS[3], value) end
	end`

// take takes a permit with that name and lease; "OK": it has.
func (r semaphore) take(id string, lease time.Duration) any {
	r.t.Helper()
	now := time.Now().UnixMilli()
	return r.eval(dropEnded+`
		local value = redis.call('get', KEYS[1])
		if value ~= false and tonumber(value) >= 1 then
			redis.call('decrby', KEYS[1], 1)
			redis.call('zadd', KEYS[2], ARGV[3], ARGV[4])
			local ttl = redis.call('pttl', KEYS[1])
			if ttl > 0 then redis.call('pexpire', KEYS[2], ttl) end
			return 'OK'
		end
		return nil`, r.names(), now, 1, now+lease.Milliseconds(), id)
}

func (r semaphore) give(id string) any {
	r.t.Helper()
	return r.eval(`
		if redis.call('zrem', KEYS[2], ARGV[2]) ~= 1 then return 0 end
		redis.call('publish', KEYS[3], redis.call('incrby', KEYS[1], 1))
		return 1`, r.names(), time.Now().UnixMilli(), id)
}

func TestPermitsAreSharedWithRedisson(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, nil)
	a, b := p.session(2), q.session(2)
	r := semaphore{newRedisson(t, srv, 1, "k")}
	r.setPermits(2)
	equal(t, "redisson", r.take("\x00\xffone", time.Minute), any("OK"))
	fence := a.fence("LOCK k LIMIT 5")
	equal(t, "redisson has to wait", r.take("two", time.Minute), any(nil))
	b.want("TRYLOCK k LIMIT 5", "(nil)") // Redisson has made two permits
	b.want("TRYLOCK k", wrongType)
	if info := b.do("LOCKINFO k"); !strings.Contains(info, "owner 00ff6f6e65 holds :1 ttl-ms") || !strings.Contains(info, "limit :2") {
		t.Errorf("LOCKINFO: %s", info)
	}
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		b.waits(verb + " k LIMIT 5")
		q.awaitAttempts("k")
		equal(t, "redisson", r.give("\x00\xffone"), any(int64(1))) // tells of it on its own channel
		fenceIn(t, b.reply())
		b.want("UNLOCK k", ":1")
		equal(t, "redisson", r.take("\x00\xffone", time.Minute), any("OK"))
	}
	r.listen("redisson_sc:{k}")
	a.want("UNLOCK k FENCE "+itoa(fence), ":1")
	equal(t, "redisson is told", nextMessage(t, r.sub), "1")
	equal(t, "redisson", r.take("two", time.Minute), any("OK"))
	b.want("TRYLOCK k LIMIT 5", "(nil)")
	a.want("FORCEUNLOCK k", ":1")
	equal(t, "permits left", srv.Do(t, "GET", "k"), any("2"))
	if ttl := srv.Client(t).PTTL(t.Context(), "k").Val(); ttl != -1 {
		t.Errorf("a TTL of %v", ttl)
	}
	equal(t, "a late release", r.give("two"), any(int64(0)))
	a.fence("LOCK k LIMIT 1")
	b.want("TRYLOCK k LIMIT 1", "(nil)")
	equal(t, "redisson", r.take("two", time.Minute), any("OK")) // it knows no limit but its own
	a.want("UNLOCK k", ":1")
	equal(t, "redisson", r.give("two"), any(int64(1)))
	equal(t, "permits left", srv.Do(t, "GET", "k"), any("2"))
	srv.Do(t, "DEL", "k")
	empty(t, srv)
}

func TestRedissonTakesPermitsThatWeHaveMade(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	r := semaphore{newRedisson(t, p.srv, 1, "k")}
	a.fence("LOCK k LIMIT 2")
	equal(t, "redisson sets no permits", r.setPermits(7), any(int64(0)))
	equal(t, "redisson", r.take("one", time.Minute), any("OK"))
	equal(t, "redisson has to wait", r.take("two", time.Minute), any(nil))
	b.want("TRYLOCK k LIMIT 2", "(nil)")
	b.fence("TRYLOCK k LIMIT 3")
	a.want("UNLOCK k", ":1")
	b.want("UNLOCK k", ":1")
	b.want("TRYLOCK k LIMIT 1", "(nil)")
	if ttl := p.srv.Client(t).PTTL(t.Context(), "k").Val(); ttl <= 0 {
		t.Errorf("a TTL of %v", ttl)
	}
	b.waits("LOCK k LIMIT 1")
	p.awaitAttempts("k")
	equal(t, "redisson", r.give("one"), any(int64(1)))
	fenceIn(t, b.reply())
	b.want("UNLOCK k", ":1")
	empty(t, p.srv)
}

// A waiter with a smaller limit stands before one with a larger limit, for which permits are left.
func TestAWaiterThatLeavesLetsTheNextWithALargerLimitAsk(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, w, b := p.session(2), p.session(2), p.session(2)
	a.fence("LOCK k LIMIT 5")
	w.waits("LOCK k LIMIT 1")
	redistest.Eventually(t, patience, "the waiter to hear of releases", func() bool { return p.settled("k") })
	b.send("LOCK k LIMIT 5") // it joins without a question
	w.hangUp()
	fenceIn(t, b.reply())
}

// The first waiter gets the only permit of its limit. The next one, here or at another proxy, has the lock beside it.
func TestTheNextWaiterMayHaveALargerLimit(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, q, other := startProxy(t, srv, onlyWhenTold), startProxy(t, srv, onlyWhenTold), startProxy(t, srv, onlyWhenTold)
	for _, c := range []struct {
		holder, small, large *proxy
		verb                 string
	}{{p, p, q, "FAIRLOCK"}, {other, p, q, "FAIRLOCK"}, {p, p, p, "LOCK"}} {
		holder, small, large := c.holder.session(2), c.small.session(2), c.large.session(2)
		holder.fence("LOCK k LIMIT 1")
		small.waits(c.verb + " k LIMIT 1")
		redistest.Eventually(t, patience, "it to hear of releases", func() bool { return c.small.settled("k") })
		large.waits(c.verb + " k LIMIT 2 WAIT 10000")
		if c.verb == "FAIRLOCK" {
			awaitPlaces(t, srv, 2)
		}
		redistest.Eventually(t, patience, "it to hear of releases", func() bool { return c.large.settled("k") })
		holder.want("UNLOCK k", ":1")
		for _, w := range []*session{small, large} {
			fenceIn(t, w.reply())
		}
		for _, w := range []*session{small, large} {
			w.want("UNLOCK k", ":1")
		}
		empty(t, srv)
	}
}
