package locks

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// faults are those of servers with replicas. Nobody may notice a planned one in a cluster but by its time: not a lock, a place in a queue or
// an answer is lost, and nothing is refused.
func (sh *shards) faults() []fault {
	concerned := func(*stand) []string { return sh.struck }
	kinds := []fault{
		{name: "kill a primary", begin: sh.kill, where: concerned},
		{name: "stop a primary", begin: sh.stop, where: concerned},
	}
	if sh.cluster != nil {
		kinds = append(kinds,
			fault{name: "reshard ascending", begin: func(*stand) (string, func()) { return sh.reshard(true) }, gentle: true},
			fault{name: "reshard at random", begin: func(*stand) (string, func()) { return sh.reshard(false) }, gentle: true},
			fault{name: "planned failover", begin: sh.plan, gentle: true},
		)
	} else {
		kinds = append(kinds, fault{name: "SENTINEL FAILOVER", begin: sh.failOver, where: concerned})
	}
	if sh.links != nil {
		kinds = append(kinds, fault{name: "cut a primary off from its peers", begin: sh.cutOff, where: concerned})
	}
	processes := ofProcesses(faults(time.Second)) // short ones, to leave time for the others
	sh.s.rng.Shuffle(len(processes), func(i, j int) { processes[i], processes[j] = processes[j], processes[i] })
	return append(kinds, processes[:2]...)
}

// pick is a shard that has locks.
func (sh *shards) pick() *shard {
	key := sh.s.keys[sh.s.rng.IntN(len(sh.s.keys))]
	return sh.of(key)
}

func (sh *shards) kill(s *stand) (string, func()) {
	one := sh.pick()
	old := one.primary
	return sh.strike(one, true, func() bool { old.Kill(); return false }), func() {
		if sh.cluster != nil {
			old.Restart()
		} else {
			at := hostPort(s.redis)
			old.Restart("--replicaof", at[0]+" "+at[1])
		}
		sh.rejoin(old)
	}
}

func (sh *shards) stop(s *stand) (string, func()) {
	one := sh.pick()
	old := one.primary
	halt := func() bool {
		old.Pause()
		s.wait(10 * time.Millisecond) // the kernel stops each thread of it
		return false
	}
	return sh.strike(one, true, halt), func() {
		s.wait(500 * time.Millisecond) // commands on their way there are given up by now
		old.Continue()
		sh.rejoin(old)
	}
}

// cutOff cuts a primary off from all servers, its replica and Sentinels, while the proxies reach it as before.
func (sh *shards) cutOff(s *stand) (string, func()) {
	one := sh.pick()
	old := one.primary
	text := ""
	if sh.cluster == nil && s.rng.IntN(2) == 0 {
		text = " that wants a replica to write"
		s.do(old, "CONFIG", "SET", "min-replicas-to-write", "1", "min-replicas-max-lag", "1")
	}
	text = sh.strike(one, false, func() bool { sh.part(old, sh.peers()...); return true }) + text
	return text, func() {
		s.wait(upTo(s.rng, time.Second))
		s.net.heal()
		s.do(old, "CONFIG", "SET", "min-replicas-to-write", "0")
		sh.rejoin(old)
	}
}

// failOver has the Sentinels promote the replica while the primary takes writes.
func (sh *shards) failOver(s *stand) (string, func()) {
	one := sh.pick()
	old := one.primary
	return sh.strike(one, false, func() bool { s.group.sentinels.BeginFailover(); return true }), func() { sh.rejoin(old) }
}

// rejoin ends a strike. It makes the former primary a replica, as Sentinels do after some seconds. In a cluster it becomes one by itself.
func (sh *shards) rejoin(old *redistest.Server) {
	s := sh.s
	if sh.cluster == nil {
		s.demote(old)
	}
	redistest.Eventually(s.t, 2*patience, "the old primary to be a replica", func() bool { return s.roleOf(old) == "slave" })
	if l := &s.losses[len(s.losses)-1]; l.alive() {
		l.to = mono()
	}
	sh.ready()
	sh.unasked()
	if sh.cluster != nil {
		sh.cluster.SetNodeTimeout(never)
	}
	s.watcher.at.Store(s.sight())
}

// strike is an unplanned failover of a shard. A blow tells whether the old primary is alive after it. lagging: the replica gets nothing of what
// is done in the moments before the blow.
func (sh *shards) strike(of *shard, lagging bool, blow func() (alive bool)) string {
	s, old := sh.s, of.primary
	sh.ready()
	sh.struck = sh.keys(of)
	s.watcher.at.Store(sh.sight(s.keys, of))
	for _, one := range sh.all {
		if one != of {
			one.sure = sh.write(one)
		}
	}
	of.sure = sh.write(of)
	if lagging && sh.links != nil {
		sh.part(old, sh.party(of.replica))
		s.wait(50*time.Millisecond + upTo(s.rng, 350*time.Millisecond))
	}
	l := loss{keys: sh.struck, sure: of.sure, from: mono()}
	alive := blow()
	if !alive {
		l.from = mono()
	}
	sh.hasten()
	sh.promoted(of)
	l.seen = mono()
	l.to = l.from
	if alive {
		l.to = math.MaxInt64 // until it is demoted
	} else if lagging && sh.links != nil {
		s.net.heal()
	}
	s.losses = append(s.losses, l)
	sh.swap(of)
	sh.relax()
	sh.followed(of, l.seen)
	return fmt.Sprintf("%s, now %s", old.Addr(), of.primary.Addr())
}

// plan is a failover that the cluster carries out in order. If the old primary claims a larger epoch a moment later, the cluster goes back to it,
// and what was done in between is lost.
func (sh *shards) plan(s *stand) (string, func()) {
	one := sh.pick()
	sh.cluster.AwaitReady()
	sh.relax()
	if left := one.voted + int64(2*patient) - mono(); left > 0 {
		s.wait(time.Duration(left)) // until then the other primaries would not vote, and the primary would stop its clients for nothing
	}
	for _, each := range sh.all {
		each.sure = sh.write(each)
	}
	old := one.primary
	sh.cluster.Failover(one.replica)
	sh.swap(one)
	s.watcher.at.Store(s.sight())
	return fmt.Sprintf("from %s to %s", old.Addr(), one.primary.Addr()), func() {
		sh.cluster.AwaitReady()
		sh.unasked()
		sh.cluster.SetNodeTimeout(never)
		s.watcher.at.Store(s.sight())
	}
}

// reshard moves the slots of all locks, each to another primary, and then once more: by ascending slots to the next one, or in any order to
// any. Each slot is half moved for a while.
func (sh *shards) reshard(ascending bool) (string, func()) {
	s := sh.s
	sh.cluster.AwaitReady()
	keys := slices.Clone(s.keys)
	slices.SortFunc(keys, func(a, b string) int { return hashslot.Of([]byte(a)) - hashslot.Of([]byte(b)) })
	step := 1
	var killed []int
	if !ascending {
		s.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		if s.rng.IntN(2) == 0 {
			i := s.rng.IntN(len(s.workers))
			s.workers[i].Signal(syscall.SIGKILL)
			killed = append(killed, i)
		}
	}
	text := ""
	for _, key := range slices.Concat(keys, keys) {
		if !ascending {
			step = 1 + s.rng.IntN(2)
		}
		from := sh.of(key)
		to := sh.all[(slices.Index(sh.all, from)+step)%len(sh.all)]
		m := redistest.Move{Cluster: sh.cluster, Slot: hashslot.Of([]byte(key)), From: from.primary, To: to.primary}
		m.Begin()
		s.wait(upTo(s.rng, 100*time.Millisecond))
		m.Keys()
		s.wait(upTo(s.rng, 100*time.Millisecond))
		m.End()
		sh.at[key] = to
		s.watcher.at.Store(s.sight())
		text += fmt.Sprintf(" %s to %s", key, to.primary.Addr())
	}
	return text, func() {
		for _, i := range killed {
			s.workers[i].Kill()
			s.startWorker(i)
		}
	}
}
