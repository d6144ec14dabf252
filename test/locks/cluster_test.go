package locks

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// shards is a cluster of three primaries with a replica each. What changes in it is planned: nobody may notice it but
// by its time. Not a lock, a place in a queue or an answer is lost, and nothing is refused.
type shards struct {
	s       *stand
	cluster *redistest.Cluster
	all     []*shard
	at      map[string]*shard // by key
}

// shard is a primary and its replica. They change their parts.
type shard struct {
	primary, replica *redistest.Server
	slot             int   // one that stays here
	voted            int64 // the others had voted for a new primary by then; they do so once in two node timeouts
}

const (
	// replicas is how many a primary has.
	replicas = 1
	// never is the time after which servers take a primary for down that has not been struck: a machine that stands still
	// must not cause a failover, because what replication loses then would look like a lock that was granted twice.
	never = 10 * time.Minute
	// patient is the node timeout of nodes that vote.
	patient = 3 * redistest.NodeTimeout
)

func (s *stand) startCluster() {
	sh := &shards{s: s, at: make(map[string]*shard)}
	sh.cluster = redistest.StartCluster(s.t, 3, replicas, "--cluster-node-timeout", fmt.Sprint(never.Milliseconds()),
		"--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no")
	third := func(slot int) int { return slot * 3 / redistest.Slots }
	slots := make([]int, len(s.keys))
	for i, key := range s.keys {
		slots[i] = hashslot.Of([]byte(key))
	}
	for i := range 3 {
		sh.all = append(sh.all, &shard{primary: sh.cluster.Nodes[i], replica: sh.cluster.Nodes[3+i]})
		for slot := range redistest.Slots {
			if third(slot) == i && !slices.Contains(slots, slot) {
				sh.all[i].slot = slot
				break
			}
		}
	}
	for i, key := range s.keys {
		sh.at[key] = sh.all[third(slots[i])]
	}
	s.shards = sh
	s.startWithRelays(nil, "cluster://"+sh.cluster.Addrs())
}

func (sh *shards) faults() []fault {
	return []fault{
		{name: "reshard ascending", begin: func(*stand) (string, func()) { return sh.reshard(true) }, gentle: true},
		{name: "reshard at random", begin: func(*stand) (string, func()) { return sh.reshard(false) }, gentle: true},
		{name: "planned failover", begin: sh.failOver, gentle: true},
	}
}

// home is the server that a lock of the workers is at.
func (sh *shards) home(key string) *redistest.Server { return sh.at[key].primary }

func (sh *shards) sight() *sight {
	at := &sight{make(map[*redis.Client][]string)}
	for _, key := range sh.s.keys {
		client := sh.home(key).Client(sh.s.t)
		at.keys[client] = append(at.keys[client], key)
	}
	return at
}

// failOver has a replica take over. The other primaries vote only with some patience left, which ends with it.
func (sh *shards) failOver(s *stand) (string, func()) {
	one := sh.at[s.keys[s.rng.IntN(len(s.keys))]]
	sh.cluster.AwaitReady()
	sh.cluster.SetNodeTimeout(patient)
	if left := one.voted + int64(2*patient) - mono(); left > 0 {
		s.wait(time.Duration(left)) // until then they would not vote, and the primary would stop its clients for nothing
	}
	old := one.primary
	sh.cluster.Failover(one.replica)
	sh.swap(one)
	return fmt.Sprintf("from %s to %s", old.Addr(), one.primary.Addr()), func() {
		sh.cluster.AwaitReady()
		for _, each := range sh.all {
			if sh.cluster.Owner(each.slot) != each.primary { // on a busy machine nodes take each other for down
				s.t.Log("a failover that nobody asked for: what it may have lost is not known")
				s.forgets = true
				sh.swap(each)
			}
		}
		sh.cluster.SetNodeTimeout(never)
	}
}

func (sh *shards) swap(of *shard) {
	of.primary, of.replica, of.voted = of.replica, of.primary, mono()
	sh.s.watcher.at.Store(sh.sight())
}

// reshard moves the slots of all locks, each to another primary, and then once more: by ascending slots to the next
// one, or in any order to any. Each slot is half moved for a while.
func (sh *shards) reshard(ascending bool) (string, func()) {
	s := sh.s
	sh.cluster.AwaitReady()
	keys := slices.Clone(s.keys)
	slices.SortFunc(keys, func(a, b string) int { return hashslot.Of([]byte(a)) - hashslot.Of([]byte(b)) })
	step := 1
	end := func() {}
	if !ascending {
		s.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		if i := s.rng.IntN(2 * len(s.workers)); i < len(s.workers) {
			s.workers[i].Signal(syscall.SIGKILL)
			end = func() {
				s.workers[i].Kill()
				s.startWorker(i)
			}
		}
	}
	var text strings.Builder
	for _, key := range slices.Concat(keys, keys) {
		if !ascending {
			step = 1 + s.rng.IntN(2)
		}
		from := sh.at[key]
		to := sh.all[(slices.Index(sh.all, from)+step)%len(sh.all)]
		m := redistest.Move{Cluster: sh.cluster, Slot: hashslot.Of([]byte(key)), From: from.primary, To: to.primary}
		m.Begin()
		s.wait(upTo(s.rng, 100*time.Millisecond))
		m.Keys()
		s.wait(upTo(s.rng, 100*time.Millisecond))
		m.End()
		sh.at[key] = to
		s.watcher.at.Store(sh.sight())
		fmt.Fprintf(&text, " %s to %s", key, to.primary.Addr())
	}
	return text.String(), end
}
