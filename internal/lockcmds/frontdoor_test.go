package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestEveryVerbCountsAsWorkUntilItIsAnswered(t *testing.T) {
	srv := redistest.Start(t)
	for _, line := range []string{"LOCKINFO k", "FORCEUNLOCK k", "EXTENDLOCK k PX 1000", "UNLOCK k", "TRYLOCK k", "LOCK k PX 600000"} {
		p := startProxy(t, srv, nil)
		s := p.session(2)
		if !p.e.Idle() {
			t.Error("a new engine has something to do")
		}
		answer := s.Lane.HoldBack()
		s.send(line)
		s.Lock()
		s.End() // what is known of the session must not be why there is work
		s.Unlock()
		if p.e.Idle() {
			t.Errorf("%s: nothing to do while its script is on its way", line)
		}
		answer()
		redistest.Eventually(t, patience, line+" to end", p.e.Idle)
		equal(t, "locks that are left", srv.Do(t, "EXISTS", "k"), any(int64(0)))
		s.Lane.Close()
	}
}
