package locktest

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
)

type noEngine struct{}

func (noEngine) Start(contract.Caller, grammar.Command) {}
func (noEngine) Ended(uint64)                           {}
func (noEngine) Forsaken(uint64) int                    { return 0 }

func TestTheDoubleKeepsTheContract(t *testing.T) {
	s := New(t, noEngine{}, 1, 3, nil)
	CheckSession(t, s, func() {
		s.Lock()
		defer s.Unlock()
		s.End()
	})
}
