package engine

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// A goroutine that a client waits for runs before the next round, although there is work for that round.
func TestLoopLetsOthersRunWhenAClientYields(t *testing.T) {
	e := running(t)
	l := e.loops[0]
	r := &epollClient{loop: l}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // no other thread runs the goroutine
	const rounds = 200
	first := 0
	for range rounds {
		var ran atomic.Bool
		seen := make(chan bool, 1)
		l.post(func() {
			go ran.Store(true)
			r.Yield()
			l.post(func() { seen <- ran.Load() })
		})
		if <-seen {
			first++
		}
	}
	if first < rounds*3/4 { // now and then the runtime prefers the loop
		t.Errorf("the goroutine was first in %d of %d rounds", first, rounds)
	}
}
