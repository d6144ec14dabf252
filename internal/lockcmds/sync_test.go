package lockcmds

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// waits is how many WAITs a server has had.
func waits(t *testing.T, srv *redistest.Server) int {
	t.Helper()
	return srv.Info(t, "commandstats", "cmdstat_wait:calls=")
}

// gone fails unless a key, its queue and its deadlines do not exist.
func (p *proxy) gone(key string) {
	p.t.Helper()
	for _, k := range []string{key, "redisson_lock_queue:{" + key + "}", "redisson_lock_timeout:{" + key + "}"} {
		if n := p.srv.Do(p.t, "EXISTS", k); n != int64(0) {
			p.t.Errorf("%s is left", k)
		}
	}
}

func TestAGrantIsAnsweredWhenReplicasHaveIt(t *testing.T) {
	srv := redistest.Start(t)
	replicas := []*redistest.Server{redistest.StartReplica(t, srv), redistest.StartReplica(t, srv)}
	p := startProxy(t, srv, func(o *Options) { o.Sync = 2 })
	a := p.session(2)
	for i, line := range []string{"LOCK k", "TRYLOCK k WAIT 9000", "FAIRLOCK k", "LOCK k"} { // replicas may be late
		a.fence(line)
		for _, r := range replicas { // without a wait for replication
			count := fmt.Sprint(r.Do(t, "HGET", "k", p.ownerOf(a)))
			if count != strconv.Itoa(i+1) {
				t.Fatalf("%s: a replica has %s holds", line, count)
			}
		}
	}
	for _, want := range []string{":0", ":0", ":0", ":1"} {
		a.want("UNLOCK k", want)
	}
	before := waits(t, srv)
	a.fence("LOCK k SYNC 0")
	a.want("UNLOCK k", ":1")
	if n := waits(t, srv) - before; n != 0 {
		t.Errorf("%d WAITs for SYNC 0", n)
	}
	// Grants to a waiter: by a hand-over, and by an attempt.
	b, c := p.session(2), startProxy(t, srv, nil).session(2)
	for _, w := range []*session{b, c} {
		a.fence("LOCK k")
		w.waits("LOCK k SYNC 2")
		before := waits(t, srv)
		a.want("UNLOCK k", ":1")
		fenceIn(t, w.reply())
		if waits(t, srv) == before {
			t.Error("a waiter's grant was not confirmed")
		}
		w.want("UNLOCK k", ":1")
	}
}

func TestAGrantThatReplicasDoNotHaveIsRolledBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	replica := redistest.StartReplica(t, srv)
	p := startProxy(t, srv, nil)
	a := p.session(2)
	for range 5 { // a WAIT on a connection that is opened behind a grant would cover the grant, whichever connection has written it
		a.fence("LOCK k SYNC 1")
		a.want("UNLOCK k", ":1")
	}
	held := a.fence("LOCK held OWNER o")
	srv.AwaitReplicas(t, 1)
	replica.Pause()
	cases := []struct {
		command string
		least   time.Duration
	}{
		{"TRYLOCK k0 SYNC 1", syncShortest},
		{"TRYLOCK held SYNC 1 OWNER o", syncShortest}, // a re-entry
		{"LOCK k1 SYNC 1 WAIT 400 OWNER o", 390 * time.Millisecond},
		{"FAIRLOCK k2 SYNC 1 WAIT 500", 490 * time.Millisecond},
		{"LOCK k4 SYNC 1 WAIT 800", 790 * time.Millisecond},
		{"LOCK k5 SYNC 1", 990 * time.Millisecond},
		{"FAIRLOCK k6 SYNC 1 WAIT 9000", 990 * time.Millisecond},
	}
	var all []*session
	began := time.Now()
	for _, c := range cases {
		s := p.session(2)
		s.send(c.command)
		all = append(all, s)
	}
	for i, c := range cases { // in the order of their ends
		got := all[i].reply()
		took := time.Since(began)
		if got != "-NOTSYNCED 0 of 1 replicas had the grant in time, and it was rolled back" || took < c.least || took > c.least+patience/2 {
			t.Errorf("%s: %s after %v", c.command, got, took)
		}
	}
	for i := range 7 {
		p.gone(fmt.Sprint("k", i))
	}
	if got := srv.Do(t, "HGET", "held", "o"); got != "1" {
		t.Errorf("%v holds behind a re-entry that was rolled back", got)
	}
	if got := fmt.Sprint(srv.Do(t, "HGET", "held", "fence")); got != strconv.FormatInt(held, 10) {
		t.Errorf("fence %s, not %d", got, held)
	}
	a.want("UNLOCK held OWNER o", ":1")
}

// The client does not have the lock for as long as it has asked for, and may end without a release.
func TestAReentryThatIsRolledBackLeavesTheLeaseAsItWas(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	redis := srv.Client(t)
	a := startProxy(t, srv, nil).session(2)
	for key, acquire := range map[string]string{"renewed": "LOCK renewed", "fixed": "LOCK fixed PX 60000"} {
		before := fmt.Sprint(a.fence(acquire))
		lease := redis.PTTL(t.Context(), key).Val()
		for _, px := range []string{"3600000", "1000"} {
			a.want("TRYLOCK "+key+" SYNC 1 PX "+px, "-NOTSYNCED 0 of 1 replicas had the grant in time, and it was rolled back")
			if left := redis.PTTL(t.Context(), key).Val(); left > lease+time.Second || left < time.Second {
				t.Errorf("%s: %v are left of %v behind PX %s", key, left, lease, px)
			}
		}
		if got := fmt.Sprint(srv.Do(t, "HGET", key, "fence")); got != before {
			t.Errorf("%s: fence %s, not %s", key, got, before)
		}
		a.want("UNLOCK "+key, ":1")
	}
}

const syncShortest = 300 * time.Millisecond

func TestAUserWithoutTheRightToWait(t *testing.T) {
	srv := redistest.Start(t)
	redistest.StartReplica(t, srv)
	srv.Do(t, "ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all", "-wait")
	p := startProxy(t, srv, func(o *Options) {
		o.Redis = redislink.New(redislink.Options{Addr: srv.Addr(), User: "u", Password: "pw"})
	})
	got := p.session(2).do("LOCK k SYNC 1") // since 7.2 Redis names the user
	if !strings.HasPrefix(got, "-NOPERM ") || !strings.HasSuffix(got, " has no permissions to run the 'wait' command") {
		t.Error(got)
	}
	p.gone("k")
}

func TestAllIsWhatTheTopologyKnows(t *testing.T) {
	srv := redistest.Start(t)
	redistest.StartReplica(t, srv)
	known := 0
	p := startProxy(t, srv, func(o *Options) { o.Sync, o.Replicas = SyncAll, func(string) int { return known } })
	s := p.session(2)
	s.want("LOCK k", "-NOTSYNCED lock.sync is all, and no replica is known; nothing was granted")
	p.gone("k")
	known = 1
	s.fence("LOCK k")
	s.want("UNLOCK k", ":1")
	known = 2
	redistest.Eventually(t, patience, "the replica to answer in time", func() bool { // on a busy machine it may be late
		return s.do("TRYLOCK k") == "-NOTSYNCED 1 of 2 replicas had the grant in time, and it was rolled back"
	})
	p.gone("k")
	s.fence("LOCK k SYNC 1")
}
