package lockcmds

import (
	"testing"

	"lockproxy/internal/redistest"
)

func TestEveryVerbCountsAsWorkUntilItIsAnswered(t *testing.T) {
	srv := redistest.Start(t)
	for _, line := range []string{"LOCKINFO k", "FORCEUNLOCK k", "EXTENDLOCK k PX 1000", "UNLOCK k", "TRYLOCK k"} {
		p := startProxy(t, srv, nil)
		s := p.session(2)
		answer := s.lane.holdBack()
		s.send(line)
		s.mu.Lock()
		s.ended = true // what is known of the session must not be why there is work
		p.e.Ended(s.id)
		s.mu.Unlock()
		if p.e.Idle() {
			t.Errorf("%s: nothing to do while its script is on its way", line)
		}
		answer()
		redistest.Eventually(t, patience, line+" to end", p.e.Idle)
		s.lane.close()
	}
}
