package proxy

import (
	"fmt"
	"runtime"
)

// newLoops makes the event loops that the engine setting asks for. One loop for two processors: the other one is Redis's,
// or another proxy's, or the lock engine's.
func newLoops(srv *Server, engine string) ([]*loop, error) {
	switch engine {
	case EngineGoroutine:
		return nil, nil
	case EngineAuto, EngineEpoll:
	default:
		return nil, fmt.Errorf("proxy: engine %q is none of auto, goroutine, epoll", engine)
	}
	loops := make([]*loop, max(1, runtime.GOMAXPROCS(0)/2))
	for i := range loops {
		var err error
		if loops[i], err = newLoop(srv); err != nil {
			return nil, err
		}
	}
	return loops, nil
}
