package lockcmds

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// task is a grant that some task has got on a connection that it shares with others.
type task struct {
	by    *session
	kind  string
	fence int64
	later bool // its connection has asked for the lock again
}

// crowdModel is what must be, of one lock: commands come one after the other.
type crowdModel struct{ held []task }

func (m *crowdModel) grants(kind string) bool {
	for _, h := range m.held {
		if h.kind != kind || kind == "" {
			return false
		}
	}
	return kind != " LIMIT 2" || len(m.held) < 2
}

func (m *crowdModel) of(s *session) (all []int) {
	for i, h := range m.held {
		if h.by == s {
			all = append(all, i)
		}
	}
	return all
}

func (m *crowdModel) remove(i int) { m.held = append(m.held[:i], m.held[i+1:]...) }

// Tasks share connections to two proxies, release by the fence on any of them or without it on their own, and
// connections end. Nobody gets a lock beside its holder, and no command ends a grant that it does not mean.
func TestTasksOnSharedConnectionsKeepWhatTheyHave(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p, q := twoProxies(t, func(o *Options) { o.Reentry, o.Lease = ReentryOwner, time.Minute })
			listening(t, p.srv, 2)
			rng, m := rand.New(rand.NewPCG(seed, 1)), crowdModel{}
			at := []*proxy{p, p, q}
			conns := []*session{p.session(3), p.session(2), q.session(2)}
			of := map[*session]*proxy{conns[0]: p, conns[1]: p, conns[2]: q}
			for range 400 {
				i := rng.IntN(len(conns))
				s := conns[i]
				switch own := m.of(s); rng.IntN(10) {
				case 0, 1, 2, 3:
					kind := []string{"", "", " SHARED", " LIMIT 2"}[rng.IntN(4)]
					got := s.do([]string{"TRYLOCK k", "LOCK k WAIT 1", "FAIRLOCK k WAIT 0"}[rng.IntN(3)] + kind + " GRACE 0")
					for _, n := range own {
						m.held[n].later = true
					}
					if granted := strings.HasPrefix(got, ":"); granted != m.grants(kind) {
						t.Fatalf("%q is answered %s beside %+v", kind, got, m.held)
					} else if granted {
						m.held = append(m.held, task{by: s, kind: kind, fence: fenceIn(t, got)})
					}
				case 4, 5, 6:
					if len(m.held) == 0 {
						continue
					}
					n := rng.IntN(len(m.held))
					h := m.held[n]
					if rng.IntN(2) == 0 && of[h.by] == of[s] {
						s.want("EXTENDLOCK k PX 60000 FENCE "+itoa(h.fence), ":1")
					}
					s.want("UNLOCK k FENCE "+itoa(h.fence), ":1")
					m.remove(n)
					hears(t, at, conns, &m)
				case 7, 8:
					switch {
					case len(own) == 0:
						s.want("UNLOCK k", notHeldWords)
					case len(own) > 1 || m.held[own[0]].later:
						if got := s.do("UNLOCK k"); got != "-ERR this connection has asked for the lock more than once, "+
							"perhaps for several tasks: name the FENCE of the grant; nothing was done" {
							t.Fatalf("UNLOCK k: %s, of %+v", got, m.held)
						}
					default:
						s.want("UNLOCK k", ":1")
						m.remove(own[0])
					}
				case 9:
					s.hangUp()
					at[i].cleanedUp()
					for own := m.of(s); len(own) > 0; own = m.of(s) {
						m.remove(own[0])
					}
					conns[i] = at[i].session(2)
					of[conns[i]] = at[i]
				}
			}
			if n := p.losses.Load() + q.losses.Load(); n > 0 {
				t.Errorf("%d losses", n)
			}
		})
	}
}

// hears waits until both proxies know what was released through the other one.
func hears(t *testing.T, at []*proxy, conns []*session, m *crowdModel) {
	t.Helper()
	for i, p := range at {
		redistest.Eventually(t, patience, "a proxy to hear of a release", func() bool {
			n := 0
			for j, c := range conns {
				if at[j] == at[i] {
					n += len(m.of(c))
				}
			}
			return p.e.Holds() == n
		})
	}
}
