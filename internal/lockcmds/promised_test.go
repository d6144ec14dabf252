package lockcmds

import (
	"testing"
	"time"
)

// A lease of which one session was told lasts, although another session of its owner was told of an earlier end, by
// another proxy: that proxy tells its own session, and ends nothing.
func TestTheEndOfALeaseLeavesALaterOneOfItsOwner(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"", " SHARED", " LIMIT 3"} {
		mode := ""
		if kind == " SHARED" {
			mode = kind
		}
		for _, later := range []string{"EXTENDLOCK k PX 60000 OWNER me" + mode, "LOCK k OWNER me PX 60000" + kind} {
			t.Run(later, func(t *testing.T) {
				t.Parallel()
				p, q := twoProxies(t, leaseOfAMinute)
				a, b, c := p.session(3), q.session(2), q.session(2)
				fence := a.fence("LOCK k OWNER me PX 3000" + kind)
				if b.fence(later); later[0] == 'E' {
					b = c // any session of the owner may release it
				}
				equal(t, "push", a.push(), ">[lock-lost k :"+itoa(fence)+" expired]")
				p.cleanedUp()
				if left := p.srv.Client(t).PTTL(t.Context(), "k").Val(); left < 30*time.Second {
					t.Errorf("%v are left of the lease", left)
				}
				if later[0] == 'L' && kind != " LIMIT 3" { // the hold of the session that was told of a loss stays with it
					b.want("UNLOCK k OWNER me"+mode, ":0")
				}
				b.want("UNLOCK k OWNER me"+mode, ":1")
			})
		}
	}
}
