package locks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// shards is one primary with its replica, or several in a cluster.
type shards struct {
	s       *stand
	all     []*shard
	cluster *redistest.Cluster // nil: there are Sentinels
	links   *namespaces        // nil: all are on the loopback interface, and nothing can be cut
	at      map[string]*shard  // by key; what is not in it never moves
	struck  []string           // the keys that the latest fault concerned
}

// shard is a primary and its replica. They change their parts.
type shard struct {
	primary, replica *redistest.Server
	sure             span   // of the latest write that all replicas confirmed
	own              string // a key that stays here, for writes and locks of the test's own
	voted            int64  // the others had voted for a new primary by then; they do so once in two node timeouts
}

// all is the number of replicas of a primary.
const all = 1

// startCluster runs three primaries with a replica each. No node takes another for down until it has been struck: a machine that stands
// still must not cause a failover.
func (s *stand) startCluster() {
	sh := &shards{s: s, at: make(map[string]*shard)}
	var places []redistest.Place
	if reason := noNamespaces(); reason == "" {
		sh.links = newNamespaces(s.t, 6)
		for i := range 6 {
			places = append(places, sh.links.place(store+node(i)))
		}
	} else {
		s.t.Logf("no network namespaces, and so no cuts: %s", reason)
	}
	sh.cluster = redistest.StartClusterAt(s.t, places, 3, all, "--cluster-node-timeout", millis(never), "--cluster-require-full-coverage", "no",
		"--cluster-allow-replica-migration", "no")
	for i := range 3 {
		sh.all = append(sh.all, &shard{primary: sh.cluster.Nodes[i], replica: sh.cluster.Nodes[3+i], own: ownKey(s.keys, i)})
	}
	for _, key := range s.keys {
		sh.at[key] = sh.first(key)
	}
	s.shards = sh
	upstream := "cluster://" + sh.cluster.Addrs()
	if sh.links != nil {
		s.proxiesInNamespaces(sh.links, upstream)
	} else {
		s.startWithRelays(nil, upstream)
	}
}

// startPair runs a primary, its replica, and three Sentinels. Each of the three has a namespace of its own.
func (s *stand) startPair() {
	links := newNamespaces(s.t, 3)
	primary := redistest.StartAt(s.t, links.place(store))
	replica := redistest.StartReplicaAt(s.t, links.place(store+1), primary)
	sentinels := redistest.StartSentinelsAt(s.t, links.place(store+2), 3, primary, []*redistest.Server{replica}, "failover-timeout 2000")
	sentinels.SetDownAfter(never)
	s.redis, s.group = primary, &group{[]*redistest.Server{primary, replica}, sentinels}
	s.shards = &shards{s: s, links: links, all: []*shard{{primary: primary, replica: replica, own: "own"}}}
	s.proxiesInNamespaces(links, sentinels.URL())
}

func millis(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// third is the primary that has a key at the start.
func third(key string) int { return hashslot.Of([]byte(key)) * 3 / redistest.Slots }

// ownKey is a key of a primary whose slot is not that of any of the others.
func ownKey(others []string, primary int) string {
	for i := 0; ; i++ {
		key := fmt.Sprint("own", i)
		same := func(other string) bool { return hashslot.Of([]byte(key)) == hashslot.Of([]byte(other)) }
		if third(key) == primary && !slices.ContainsFunc(others, same) {
			return key
		}
	}
}

// of is the shard that has a key.
func (sh *shards) of(key string) *shard {
	if one := sh.at[key]; one != nil {
		return one
	}
	return sh.first(key)
}

// first is the shard that has a key unless its slot was moved.
func (sh *shards) first(key string) *shard {
	if len(sh.all) == 1 {
		return sh.all[0]
	}
	return sh.all[third(key)]
}

// keys are those that a shard has.
func (sh *shards) keys(of *shard) (keys []string) {
	for _, key := range sh.s.keys {
		if sh.of(key) == of {
			keys = append(keys, key)
		}
	}
	return keys
}

// sight is where the observer looks, but for a shard that nobody can tell about.
func (sh *shards) sight(keys []string, but *shard) *sight {
	at := &sight{make(map[*redis.Client][]string)}
	for _, one := range sh.all {
		if one != but {
			at.keys[one.primary.Client(sh.s.t)] = sh.keys(one)
		}
	}
	return at
}

// write has all replicas of a shard confirm what was done there before the write, and returns when the write was carried out.
func (sh *shards) write(to *shard) span {
	client := to.primary.Client(sh.s.t)
	var at span
	redistest.Eventually(sh.s.t, 2*patience, "the replicas to confirm a write", func() bool {
		conn := client.Conn()
		defer conn.Close()
		at.from = mono()
		err := conn.Set(sh.s.t.Context(), to.own, "sure", 0).Err()
		at.to = mono()
		n, werr := conn.Do(sh.s.t.Context(), "WAIT", all, 1000).Int()
		return err == nil && werr == nil && n == all
	})
	return at
}

// party is where a server runs.
func (sh *shards) party(of *redistest.Server) node {
	host := hostPort(of)[0]
	for _, who := range sh.links.parties {
		if sh.links.host(who) == host {
			return who
		}
	}
	return -1
}

// part cuts a server off from other servers, and them from it.
func (sh *shards) part(one *redistest.Server, from ...node) {
	who := sh.party(one)
	for _, other := range from {
		if other != who {
			sh.links.cut(who, other)
			sh.links.cut(other, who)
		}
	}
}

// peers are all servers, and Sentinels.
func (sh *shards) peers() []node { return sh.links.parties[slices.Index(sh.links.parties, store):] }

// hasten makes the servers notice that a primary is down; relax ends that.
func (sh *shards) hasten() {
	if sh.cluster != nil {
		sh.cluster.SetNodeTimeout(redistest.NodeTimeout)
	} else {
		sh.s.group.sentinels.SetDownAfter(redistest.DownAfter)
	}
}

// relax gives the servers more patience. Nodes of a cluster ask each other the more rarely the more patience they have, so they have it only
// when the old primary is back.
func (sh *shards) relax() {
	if sh.cluster != nil {
		sh.cluster.SetNodeTimeout(patient)
	} else {
		sh.s.group.sentinels.SetDownAfter(never)
	}
}

// patient is the node timeout of nodes that notice a dead one, but not a busy machine.
const patient = 3 * redistest.NodeTimeout

// ready returns when each primary has its replica, and all know it.
func (sh *shards) ready() {
	if sh.cluster != nil {
		sh.cluster.AwaitReady()
	} else {
		sh.s.awaitReplicas()
	}
}

// promoted returns when all servers but the old primary take the replica for the primary.
func (sh *shards) promoted(of *shard) {
	if sh.cluster == nil {
		if now := sh.s.group.sentinels.AwaitOther(of.primary); now != of.replica {
			sh.s.t.Fatalf("the Sentinels have made %s the primary", now.Addr())
		}
		return
	}
	var others []*redistest.Server
	for _, node := range sh.cluster.Nodes {
		if node != of.primary {
			others = append(others, node)
		}
	}
	sh.cluster.AwaitOwner(hashslot.Of([]byte(of.own)), of.replica, others...)
}

// swap notes that the replica is the primary now.
func (sh *shards) swap(of *shard) {
	of.primary, of.replica, of.voted = of.replica, of.primary, mono()
	if sh.cluster == nil {
		sh.s.redis = of.primary
		sh.s.admin = of.primary.Client(sh.s.t)
	}
}

// followed demands that each proxy soon carries out commands at the new primary. A grant alone would not prove that.
func (sh *shards) followed(of *shard, since int64) {
	s, key := sh.s, "{"+of.own+"}followed"
	for _, p := range s.proxies {
		told := ""
		for {
			c, err := p.dial()
			if err == nil {
				var v reply
				begin := mono()
				v, err = c.do(time.Second, "SET", key, p.name)
				told += fmt.Sprintf("%v %v [%.3f, %.3f]; ", v, err, seconds(begin), seconds(mono()))
				c.hangUp()
			}
			if of.primary.Do(s.t, "GET", key) == p.name {
				break
			}
			if mono()-since > int64(follow)+s.stalls.since(since) {
				s.fail("liveness", "%s does not use the new primary %v after it was known at %.3f: %s%v", p.name, follow, seconds(since), told, err)
				break
			}
			s.wait(5 * time.Millisecond)
		}
		s.t.Logf("%s follows %.3f s after the promotion at %.3f: %s", p.name, seconds(mono()-since), seconds(since), told)
	}
}

// follow is how long a proxy may take to use a new primary that its peers know.
const follow = 1500 * time.Millisecond

// unasked looks for failovers in a cluster that the test did not bring about. On a busy machine nodes may take each other for down when they
// have little patience. They are losses as well.
func (sh *shards) unasked() {
	for _, one := range sh.all {
		if sh.cluster == nil || sh.cluster.Owner(hashslot.Of([]byte(one.own))) == one.primary {
			continue
		}
		now := mono()
		l := loss{keys: sh.keys(one), sure: one.sure, from: one.sure.to, seen: now, to: now}
		sh.s.t.Logf("a failover that nobody asked for: %v", l)
		sh.s.losses = append(sh.s.losses, l)
		sh.s.incidents = append(sh.s.incidents, incident{what: "false failover", from: l.from, to: now, keys: l.keys})
		sh.swap(one)
	}
}

// roleOf is "master" or "slave".
func (s *stand) roleOf(server *redistest.Server) string {
	return strings.TrimSpace(s.fact(server, "role"))
}
