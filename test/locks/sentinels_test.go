package locks

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// pair is a primary, its replica, and three Sentinels. Each of the three has a namespace of its own. What a failover
// loses that nobody has prepared is known to histories in virtual time (internal/lockcmds/sim): here fences are judged,
// what is told, and what becomes of the locks in the end.
type pair struct {
	s                *stand
	links            *namespaces
	primary, replica *redistest.Server
	sentinels        *redistest.Sentinels
}

func (s *stand) startPair() {
	links := newNamespaces(s.t, 3)
	primary := redistest.StartAt(s.t, links.place(store))
	replica := redistest.StartReplicaAt(s.t, links.place(store+1), primary)
	sentinels := redistest.StartSentinelsAt(s.t, links.place(store+2), 3, primary, []*redistest.Server{replica},
		"failover-timeout 2000")
	sentinels.SetDownAfter(never)
	s.redis, s.pair = primary, &pair{s, links, primary, replica, sentinels}
	s.proxiesInNamespaces(links, sentinels.URL())
}

func (p *pair) faults() []fault {
	return []fault{
		{name: "kill the primary", begin: func(*stand) (string, func()) {
			old := p.primary
			return p.strike(old.Kill), func() {
				at := hostPort(p.primary)
				old.Restart("--replicaof", at[0]+" "+at[1])
				p.rejoin(old)
			}
		}},
		{name: "stop the primary", begin: func(s *stand) (string, func()) {
			old := p.primary
			return p.strike(old.Pause), func() {
				s.wait(500 * time.Millisecond) // commands on their way there are given up by now
				old.Continue()
				p.rejoin(old)
			}
		}},
		{name: "SENTINEL FAILOVER", begin: func(*stand) (string, func()) { // while the primary takes writes
			old := p.primary
			return p.strike(p.sentinels.BeginFailover), func() { p.rejoin(old) }
		}},
		{name: "cut the primary off from its peers", begin: func(s *stand) (string, func()) { // not from the proxies
			old, who := p.primary, store
			if hostPort(old)[0] != p.links.host(store) {
				who = store + 1
			}
			return p.strike(func() {
					for other := store; other <= store+2; other++ {
						if other != who {
							p.links.cut(who, other)
							p.links.cut(other, who)
						}
					}
				}), func() {
					s.wait(upTo(s.rng, time.Second))
					p.links.heal()
					p.rejoin(old)
				}
		}},
	}
}

// strike is a failover that nobody has prepared. It demands that each proxy soon carries out commands at the new
// primary: a grant alone would not prove that.
func (p *pair) strike(blow func()) string {
	s := p.s
	p.ready()
	s.watcher.at.Store(nil)
	blow()
	p.sentinels.SetDownAfter(redistest.DownAfter)
	if now := p.sentinels.AwaitOther(p.primary); now != p.replica {
		s.t.Fatalf("the Sentinels have made %s the primary", now.Addr())
	}
	since := mono()
	p.sentinels.SetDownAfter(never)
	p.primary, p.replica = p.replica, p.primary
	s.redis, s.admin = p.primary, p.primary.Client(s.t)
	for _, one := range s.proxies {
		for p.primary.Do(s.t, "GET", "followed") != one.name {
			c, err := one.dial()
			if err == nil {
				_, err = c.do(time.Second, "SET", "followed", one.name)
				c.hangUp()
			}
			if mono()-since > int64(follow)+s.stalls.since(since) {
				s.fail("liveness", "%s does not use the primary of %.3f in %v: %v", one.name, seconds(since), follow, err)
				break
			}
			s.wait(5 * time.Millisecond)
		}
	}
	return fmt.Sprintf("%s, now %s", p.replica.Addr(), p.primary.Addr())
}

// follow is how long a proxy may take to use a new primary that its peers know.
const follow = 1500 * time.Millisecond

// rejoin makes a former primary a replica, as Sentinels do after some seconds. Until then it takes no writes.
func (p *pair) rejoin(old *redistest.Server) {
	at := hostPort(p.primary)
	p.s.do(old, "REPLICAOF", at[0], at[1])
	p.s.do(old, "CLIENT", "UNPAUSE") // Sentinels publish
	p.ready()
	p.s.watcher.at.Store(p.s.sight())
}

// ready returns when the replica is up, and the Sentinels know so and would fail over.
func (p *pair) ready() {
	if now := p.sentinels.Primary(); now != nil && now != p.primary {
		p.s.t.Fatalf("the Sentinels have made %s the primary by themselves; it was %s", now.Addr(), p.primary.Addr())
	}
	redistest.Eventually(p.s.t, 2*patience, "the replica to be up", func() bool {
		text, _ := p.replica.Client(p.s.t).Info(p.s.t.Context(), "replication").Result()
		return strings.Contains(text, "role:slave") && strings.Contains(text, "master_link_status:up") &&
			strings.Contains(text, "master_port:"+hostPort(p.primary)[1]+"\r\n") && p.sentinels.Ready()
	})
}

// do sends a command to a server that may close the connection.
func (s *stand) do(srv *redistest.Server, args ...any) {
	redistest.Eventually(s.t, patience, "an answer", func() bool {
		return srv.Client(s.t).Do(s.t.Context(), args...).Err() == nil
	})
}

func hostPort(of *redistest.Server) []string { return strings.Split(of.Addr(), ":") }
