package calls

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/locktest"
)

// world is calls without I/O.
type world struct {
	*locktest.World
	*Calls
}

func newWorld(t *testing.T) *world {
	w := locktest.NewWorld()
	return &world{w, New(Options{Client: Client{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop(), Lease: 30 * time.Second})}
}
