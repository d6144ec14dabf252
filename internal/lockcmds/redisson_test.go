package lockcmds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// redisson plays a Redisson client from the description of its scripts: the same keys, messages and order of calls,
// with its own clock.
type redisson struct {
	t     *testing.T
	c     *redis.Client
	owner string
	key   string
	sub   *redis.PubSub
}

func newRedisson(t *testing.T, srv *redistest.Server, n int, key string) *redisson {
	return &redisson{t: t, c: srv.Client(t), owner: fmt.Sprintf("eeeeeeee-0000-4000-8000-%012d:%d", n, n), key: key}
}

func (r *redisson) eval(script string, keys []string, args ...any) any {
	r.t.Helper()
	v, err := r.c.Eval(r.t.Context(), script, keys, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		r.t.Fatal(err)
	}
	return v
}

// acquire returns nil if the lock was acquired, else the time to live.
func (r *redisson) acquire() any {
	r.t.Helper()
	return r.eval(`
		if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`, []string{r.key}, 30000, r.owner)
}

func (r *redisson) release() any {
	r.t.Helper()
	return r.eval(`
		if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
			redis.call('pexpire', KEYS[1], ARGV[1])
			return 0
		end
		redis.call('del', KEYS[1])
		redis.call('publish', KEYS[2], '0')
		return 1`, []string{r.key, script.Channel(r.key)}, 30000, r.owner)
}

// readAcquire and writeAcquire take the read and the write lock of that name; nil: granted, else the time to live.
func (r *redisson) readAcquire() any {
	r.t.Helper()
	return r.eval(`
		local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == false then
			redis.call('hset', KEYS[1], 'mode', 'read')
			redis.call('hset', KEYS[1], ARGV[2], 1)
			redis.call('set', KEYS[2] .. ':1', 1)
			redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if mode == 'read' or mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1 then
			local key = KEYS[2] .. ':' .. redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('set', key, 1)
			redis.call('pexpire', key, ARGV[1])
			redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
			return nil
		end
		return redis.call('pttl', KEYS[1])`, []string{r.key, r.timeouts()}, 30000, r.owner, r.owner+":write")
}

func (r *redisson) writeAcquire() any {
	r.t.Helper()
	return r.eval(`
		local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == false then
			redis.call('hset', KEYS[1], 'mode', 'write')
			redis.call('hset', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
			return nil
		end
		return redis.call('pttl', KEYS[1])`, []string{r.key}, 30000, r.owner+":write")
}

func (r *redisson) timeouts() string { return "{" + r.key + "}:" + r.owner + ":rwlock_timeout" }

// readRelease never ends if the hash has another holder whose field is a large number.
func (r *redisson) readRelease() any {
	r.t.Helper()
	return r.eval(`
		if redis.call('hget', KEYS[1], 'mode') == false then
			redis.call('publish', KEYS[2], '0')
			return nil
		end
		if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
		local count = redis.call('hincrby', KEYS[1], ARGV[1], -1)
		if count == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
		redis.call('del', KEYS[3] .. ':' .. (count + 1))
		if redis.call('hlen', KEYS[1]) > 1 then
			local most = -3
			for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
				local held = tonumber(redis.call('hget', KEYS[1], field))
				if type(held) == 'number' then
					for i = held, 1, -1 do
						most = math.max(most, redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i))
					end
				end
			end
			if most > 0 then
				redis.call('pexpire', KEYS[1], most)
				return 0
			end
			if redis.call('hget', KEYS[1], 'mode') == 'write' then return 0 end
		end
		redis.call('del', KEYS[1])
		redis.call('publish', KEYS[2], '0')
		return 1`, []string{r.key, "redisson_rwlock:{" + r.key + "}", r.timeouts(), "{" + r.key + "}"}, r.owner)
}

func (r *redisson) writeRelease() any {
	r.t.Helper()
	return r.eval(`
		local mode = redis.call('hget', KEYS[1], 'mode')
		if mode == false then redis.call('publish', KEYS[2], '1') end
		if mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
			redis.call('pexpire', KEYS[1], ARGV[1])
			return 0
		end
		redis.call('hdel', KEYS[1], ARGV[2])
		if redis.call('hlen', KEYS[1]) == 1 then
			redis.call('del', KEYS[1])
			redis.call('publish', KEYS[2], '1')
		else
			redis.call('hset', KEYS[1], 'mode', 'read')
		end
		return 1`, []string{r.key, "redisson_rwlock:{" + r.key + "}"}, 30000, r.owner+":write")
}

const dropStale = `
	while true do
		local head = redis.call('lindex', KEYS[2], 0)
		if not head then break end
		local score = redis.call('zscore', KEYS[3], head)
		if not score or tonumber(score) > tonumber(ARGV[4]) then break end
		redis.call('zrem', KEYS[3], head)
		redis.call('lpop', KEYS[2])
	end`

// fair asks in order; nil: acquired.
func (r *redisson) fair() any {
	r.t.Helper()
	n := locktest.NamesOf(r.key)
	return r.eval(dropStale+`
		if redis.call('exists', KEYS[1]) == 0
			and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
			redis.call('lpop', KEYS[2])
			redis.call('zrem', KEYS[3], ARGV[2])
			for _, other in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
				redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), other)
			end
			redis.call('hset', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
			redis.call('hincrby', KEYS[1], ARGV[2], 1)
			redis.call('pexpire', KEYS[1], ARGV[1])
			return nil
		end
		if redis.call('zscore', KEYS[3], ARGV[2]) then
			return math.max(0, redis.call('pttl', KEYS[1]))
		end
		local last = redis.call('lindex', KEYS[2], -1)
		local ttl
		local score = last and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last)
		if score then ttl = tonumber(score) - tonumber(ARGV[4]) else ttl = redis.call('pttl', KEYS[1]) end
		if redis.call('zadd', KEYS[3], ttl + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2]) == 1 then
			redis.call('rpush', KEYS[2], ARGV[2])
		end
		return ttl`, []string{n.Lock, n.Queue, n.Deadlines}, 30000, r.owner, wait, time.Now().UnixMilli())
}

func (r *redisson) fairRelease() any {
	r.t.Helper()
	n := locktest.NamesOf(r.key)
	return r.eval(dropStale+`
		local head = redis.call('lindex', KEYS[2], 0)
		if redis.call('exists', KEYS[1]) == 0 then
			if head then redis.call('publish', KEYS[5] .. ':' .. head, '0') end
			return 1
		end
		if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
		if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
			redis.call('pexpire', KEYS[1], ARGV[1])
			return 0
		end
		redis.call('del', KEYS[1])
		if head then redis.call('publish', KEYS[5] .. ':' .. head, '0') end
		return 1`, []string{n.Lock, n.Queue, n.Deadlines, "unused", n.Channel}, 30000, r.owner, 0, time.Now().UnixMilli())
}

// listen subscribes as a waiter does; awaitMessage returns when it is woken.
func (r *redisson) listen(channel string) {
	r.t.Helper()
	r.sub = subscribed(r.t, r.c, channel)
}

// subscribed listens to a channel until the test ends.
func subscribed(t testing.TB, c *redis.Client, channel string) *redis.PubSub {
	t.Helper()
	sub := c.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.ReceiveTimeout(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	return sub
}

// nextMessage is the next message of a subscription.
func nextMessage(t testing.TB, sub *redis.PubSub) string {
	t.Helper()
	got, err := sub.ReceiveTimeout(t.Context(), patience)
	if err != nil {
		t.Fatal(err)
	}
	m, ok := got.(*redis.Message)
	if !ok {
		t.Fatalf("%v instead of a message", got)
	}
	return m.Payload
}

func (r *redisson) awaitMessage() {
	r.t.Helper()
	m := nextMessage(r.t, r.sub)
	for _, first := script.ReadFirst(m); first; _, first = script.ReadFirst(m) { // Redisson does not heed it
		m = nextMessage(r.t, r.sub)
	}
	if m != "0" {
		r.t.Fatalf("message %s", m)
	}
}

func TestRedissonAndWeExcludeAndWakeEachOther(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	a, j := p.session(2), newRedisson(t, p.srv, 1, "k")
	if got := j.acquire(); got != nil {
		t.Fatalf("redisson: %v", got)
	}
	a.want("TRYLOCK k", "(nil)")
	a.want("UNLOCK k", notHeldWords)
	a.send("LOCK k")
	a.quiet(100 * time.Millisecond)
	equal(t, "redisson releases", j.release(), any(int64(1)))
	fenceIn(t, a.reply()) // long before redisson's lease of 30 s would have ended
	if ttl, _ := j.acquire().(int64); ttl <= 0 || ttl > someLease.Milliseconds() {
		t.Fatalf("redisson is told %d ms", ttl)
	}
	equal(t, "redisson is not the holder", j.release(), any(nil))
	j.listen(script.Channel("k"))
	a.want("UNLOCK k", ":1")
	j.awaitMessage()
	if got := j.acquire(); got != nil {
		t.Fatalf("redisson: %v", got)
	}
	a.want("FORCEUNLOCK k", ":1")
	j.awaitMessage()
}

func TestRedissonOwnerTakesOverItsHoldThroughUs(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	a, j := p.session(2), newRedisson(t, p.srv, 1, "k")
	j.acquire()
	fence := a.fence("LOCK k OWNER " + j.owner)
	equal(t, "redisson releases one hold", j.release(), any(int64(0)))
	a.want("UNLOCK k OWNER "+j.owner+" FENCE "+itoa(fence), ":1")
}

func TestFairQueueIsSharedWithRedisson(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.staleHead = time.Minute })
	a, b := p.session(2), p.session(2)
	j, k := newRedisson(t, srv, 1, "k"), newRedisson(t, srv, 2, "k")
	if got := j.fair(); got != nil {
		t.Fatalf("redisson: %v", got)
	}
	a.waits("FAIRLOCK k")
	k.fair()
	k.listen(script.NameChannel("k", k.owner))
	b.waits("FAIRLOCK k")
	b.quiet(50 * time.Millisecond)
	equal(t, "redisson releases", j.fairRelease(), any(int64(1)))
	fenceIn(t, a.reply()) // long before redisson's lease of 30 s would have ended
	if got := k.fair(); got == nil {
		t.Fatal("redisson overtook")
	}
	a.want("UNLOCK k", ":1")
	k.awaitMessage()
	if got := k.fair(); got != nil {
		t.Fatalf("redisson: %v", got)
	}
	b.quiet(50 * time.Millisecond)
	equal(t, "redisson releases", k.fairRelease(), any(int64(1)))
	fenceIn(t, b.reply())
}

func TestFairHeadsThatDoNotListenHoldUpNobody(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.staleHead = time.Hour })
	holder, a := p.session(2), p.session(2)
	holder.fence("LOCK k")
	for n := range 3 {
		newRedisson(t, srv, n, "k").fair() // killed before it could subscribe
	}
	a.waits("FAIRLOCK k")
	p.awaitAttempts("k")
	holder.want("UNLOCK k", ":1")
	fenceIn(t, a.reply())
}

// placeOf is the place in the queue of the acquire that the session waits for.
func (p *proxy) placeOf(s *session) string {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	return p.e.sessions[s.ID].asks.Place
}

func TestSubscribedFairHeadsThatDoNotReactAreRemoved(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.staleHead = 100 * time.Millisecond })
	holder, a, b := p.session(2), p.session(2), p.session(2)
	holder.fence("LOCK k")
	var cutOff []*redisson
	for n := range 3 { // threads of one process: cut off, but Redis does not know
		j := newRedisson(t, srv, 1, "k")
		j.owner = j.owner[:37] + itoa(int64(n))
		j.fair()
		j.listen(script.NameChannel("k", j.owner))
		cutOff = append(cutOff, j)
	}
	a.waits("FAIRLOCK k")
	start := time.Now()
	holder.want("UNLOCK k", ":1")
	fenceIn(t, a.reply())
	if took := time.Since(start); took < 3*time.Second {
		t.Errorf("granted after %v", took)
	}
	b.waits("FAIRLOCK k")
	if got := cutOff[0].fair(); got == nil {
		t.Fatal("who was removed has the lock")
	}
	equal(t, "who comes back is the last", srv.Client(t).LRange(t.Context(), "redisson_lock_queue:{k}", 0, -1).Val(),
		[]string{p.placeOf(b), cutOff[0].owner})
}

func TestFairWaitersKeepTheirDeadlinesFresh(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.fairWait, o.Lease = 4*time.Second, 4*time.Second })
	holder, a := p.session(2), p.session(2)
	holder.fence("LOCK k")
	a.waits("FAIRLOCK k")
	a.quiet(10 * time.Second)
	j := newRedisson(t, srv, 1, "k")
	j.fair() // drops who is overdue
	equal(t, "queue", srv.Client(t).LRange(t.Context(), "redisson_lock_queue:{k}", 0, -1).Val(),
		[]string{p.placeOf(a), j.owner})
	holder.want("UNLOCK k", ":1")
	fenceIn(t, a.reply())
}

// Every client with the right may write a lock's hash by hand. What cannot have been a fence counts as none.
func TestFenceThatSomebodyHasWrittenIsReplaced(t *testing.T) {
	srv := redistest.Start(t)
	s := startProxy(t, srv, nil).session(2)
	for _, odd := range []string{"-5", "0", "1.5", "1e30", "nan", "abc", ""} {
		for _, verb := range []string{"LOCK", "FAIRLOCK"} {
			srv.Do(t, "HSET", "k", "job", "1", "fence", odd)
			if fence := s.fence(verb + " k OWNER job"); fence < 1e15 {
				t.Errorf("%s with the fence %q: %d", verb, odd, fence)
			}
			s.want("UNLOCK k OWNER job", ":0")
			s.want("UNLOCK k OWNER job", ":1")
		}
	}
}

// A hash without an owner can be acquired by no client, so it is no free lock.
func TestHashWithoutAnOwnerIsNotFree(t *testing.T) {
	srv := redistest.Start(t)
	s := startProxy(t, srv, nil).session(2)
	srv.Do(t, "HSET", "k", "fence", "17")
	s.want("TRYLOCK k", "(nil)")
	if got := s.do("LOCKINFO k"); got == "(nil)" {
		t.Errorf("LOCKINFO: %q", got)
	}
	s.want("FORCEUNLOCK k", ":1")
	s.fence("LOCK k")
	s.want("UNLOCK k", ":1")
}

// A read lock of Redisson that is granted beside a lock of ours hangs Redis when it is released.
func TestRedissonReadAndWriteLocksWaitForOurs(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, nil)
	a, b := p.session(2), p.session(2)
	for i, commands := range [][]string{
		{"LOCK k"},
		{"TRYLOCK k"},
		{"FAIRLOCK k"},
		{"LOCK k PX 60000"},
		{"LOCK k", "LOCK k"},
		{"LOCK k OWNER job"},
		{"LOCK k NOTE 99999999999"},
		{"LOCK k OWNER job", "FAIRLOCK k OWNER job"},
		{"LOCK k MAXHOLD 60000", "EXTENDLOCK k PX 50000"},
		{"LOCK k", "LOCK k", "UNLOCK k"},
	} {
		for _, c := range commands {
			a.do(c)
		}
		waitFor := newRedisson(t, srv, i, "k")
		assertExcluded(t, srv, waitFor, strings.Join(commands, ", "))
		a.want("FORCEUNLOCK k", ":1")
		a.do("UNLOCK k")
	}
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		a.fence("LOCK k")
		b.waits(verb + " k")
		a.want("UNLOCK k", ":1") // handed over
		fenceIn(t, b.reply())
		assertExcluded(t, srv, newRedisson(t, srv, 20, "k"), verb+", handed over")
		b.want("UNLOCK k", ":1")

		far := q.session(2)
		far.fence("LOCK k")
		b.waits(verb + " k")
		far.want("UNLOCK k", ":1")
		fenceIn(t, b.reply())
		assertExcluded(t, srv, newRedisson(t, srv, 21, "k"), verb+", behind another proxy")
		b.want("UNLOCK k", ":1")
	}
}

// assertExcluded plays read and write locks of a Redisson client on a lock of ours: they wait, and change nothing.
func assertExcluded(t *testing.T, srv *redistest.Server, j *redisson, what string) {
	t.Helper()
	fields := func() map[string]string {
		return srv.Client(t).HGetAll(t.Context(), j.key).Val()
	}
	before := fields()
	for name, acquire := range map[string]func() any{"read": j.readAcquire, "write": j.writeAcquire} {
		if ttl, _ := acquire().(int64); ttl <= 0 {
			t.Fatalf("%s: redisson is granted the %s lock", what, name)
		}
	}
	equal(t, what+": read unlock", j.readRelease(), any(nil))
	equal(t, what+": write unlock", j.writeRelease(), any(nil))
	equal(t, what+": the hash", fields(), before)
}

func TestWeWaitForRedissonReadAndWriteLocks(t *testing.T) {
	srv := redistest.Start(t)
	s := startProxy(t, srv, nil).session(2)
	for name, j := range map[string]struct {
		acquire, release func(*redisson) any
		field            string
	}{
		"read":  {(*redisson).readAcquire, (*redisson).readRelease, ""},
		"write": {(*redisson).writeAcquire, (*redisson).writeRelease, ":write"},
	} {
		r := newRedisson(t, srv, 1, name)
		equal(t, name, j.acquire(r), any(nil))
		equal(t, name+" again", j.acquire(r), any(nil))
		before := srv.Client(t).HGetAll(t.Context(), name).Val()
		owner := r.owner + j.field
		for _, who := range []string{"", " OWNER " + owner} {
			s.want("TRYLOCK "+name+who, "(nil)")
			s.want("LOCK "+name+who+" WAIT 50", "(nil)")
			s.want("FAIRLOCK "+name+who+" WAIT 50", "(nil)")
			for _, command := range []string{"UNLOCK " + name + who, "EXTENDLOCK " + name + who + " PX 50"} {
				if got := s.do(command); !strings.HasPrefix(got, "-NOTHELD") {
					t.Errorf("%s: %s", command, got)
				}
			}
		}
		equal(t, name+": the hash", srv.Client(t).HGetAll(t.Context(), name).Val(), before)
		if info := s.do("LOCKINFO " + name); !strings.Contains(info, owner) || !strings.Contains(info, "fence") {
			t.Errorf("LOCKINFO: %s", info)
		}
		equal(t, name+" unlock", j.release(r), any(int64(0)))
		equal(t, name+" unlock", j.release(r), any(int64(1)))
		s.fence("TRYLOCK " + name)
		s.want("UNLOCK "+name, ":1")
		equal(t, name, j.acquire(r), any(nil))
		s.want("FORCEUNLOCK "+name, ":1")
		equal(t, name+" unlock", j.release(r), any(nil))
	}
}

// A note is no number to a reader of Redisson's, which counts each number in a hash down to one, and it is still there
// when that reader has come and gone.
func TestRedissonReadersDoNotReadNotes(t *testing.T) {
	srv := redistest.Start(t)
	a := startProxy(t, srv, nil).session(2)
	for _, command := range []string{"LOCK k SHARED NOTE 99999999999", "LOCK k SHARED OWNER job NOTE 1"} {
		a.fence(command)
		j := newRedisson(t, srv, 30, "k")
		equal(t, "a reader beside it", j.readAcquire(), nil)
		equal(t, "its release", j.readRelease(), int64(0))
		if got := a.do("LOCKINFO k"); !strings.Contains(got, "note ") {
			t.Errorf("LOCKINFO k: %s", got)
		}
		equal(t, "another reader", j.readAcquire(), nil)
		a.want("UNLOCK k"+owner(command), ":1")
		equal(t, "its release, the last one", j.readRelease(), int64(1))
	}
}

// owner is the option OWNER of a command, with a blank in front.
func owner(command string) string {
	if _, rest, ok := strings.Cut(command, " OWNER "); ok {
		return " OWNER " + strings.Fields(rest)[0]
	}
	return ""
}

func TestUnlockIsForWhatRedissonHasAcquiredForTheOwner(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, leaseOfAMinute), startProxy(t, srv, nil)
	redis := srv.Client(t)
	a, b := p.session(2), q.session(2)
	for _, command := range []string{"UNLOCK k OWNER me", "EXTENDLOCK k PX 60000 OWNER me"} {
		a.fence("LOCK k OWNER me")
		b.want("UNLOCK k OWNER me", ":1")
		redis.HSet(t.Context(), "k", "me", 1)
		redis.PExpire(t.Context(), "k", time.Minute)
		a.want(command, ":1")
		redis.Del(t.Context(), "k")
	}
}
