package lockcmds

import (
	"testing"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/locktest"
)

// callWorld is calls without I/O.
type callWorld struct {
	*locktest.World
	*calls
}

func newCallWorld(t *testing.T) *callWorld {
	w := locktest.NewWorld()
	return &callWorld{w, &calls{
		Client: scriptRunner{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop(),
	}}
}
