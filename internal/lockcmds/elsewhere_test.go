package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A grant that is released through another proxy is no loss, however it is named, and although its connection acquires
// the lock again before the message has come, or a renewal finds that it is over.
func TestAReleaseThroughAnotherProxyIsNoLoss(t *testing.T) {
	t.Parallel()
	const rounds = 200
	for _, kind := range []string{"", " SHARED", " LIMIT 3"} {
		for name, way := range map[string]struct {
			owner string
			fence bool
		}{"fence": {"", true}, "owner": {" OWNER job", false}, "both": {" OWNER job", true}} {
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				p, q := twoProxies(t, nil)
				a, b := p.session(3), q.session(2)
				listening(t, p.srv, 2)
				mode := ""
				if kind == " SHARED" {
					mode = kind
				}
				for range rounds {
					fence := a.fence("LOCK k" + kind + way.owner)
					line := "UNLOCK k" + mode + way.owner
					if way.fence {
						line += " FENCE " + itoa(fence)
					}
					b.want(line, ":1")
				}
				redistest.Eventually(t, patience, "the holder's proxy to know", func() bool { return p.e.Holds() == 0 })
				a.quiet(4 * 40 * time.Millisecond) // by then a loss would be told
				if n := p.losses.Load(); n != 0 || len(a.Pushes) > 0 {
					t.Errorf("%d losses, %d pushes", n, len(a.Pushes))
				}
				a.want("UNLOCK k"+way.owner, notHeldOf(way.owner))
			})
		}
	}
}

// The session of a loss may release what its owner has acquired elsewhere since, by its fence.
func TestALossDoesNotHideALaterGrantOfTheOwner(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, leaseOfAMinute)
	a, b := p.session(2), q.session(2)
	a.fence("LOCK k OWNER job")
	b.want("FORCEUNLOCK k", ":1")
	redistest.Eventually(t, patience, "the loss", func() bool { return p.losses.Load() == 1 })
	fence := itoa(b.fence("LOCK k OWNER job"))
	a.want("UNLOCK k OWNER job FENCE "+fence, ":1")
	empty(t, p.srv)
}

func notHeldOf(owner string) string {
	if owner != "" {
		return "-NOTHELD this OWNER does not hold the lock"
	}
	return notHeldWords
}
