package upstream

import (
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// drainingServers are those that have left, and still have time.
//
// A server that has left a cluster's view has time for the replies that it has not sent yet.
//
//	         has left                        the time is over
//	present ──────────▶ drains ──────────────────────────────────▶ its connections end
//	   ▲                      │
//	   └──────────────────────┘
//	          is back
//
// A server that leaves, comes back and leaves again has a whole drain the second time.
type drainingServers struct {
	over func(at topology.Node)

	mu  sync.Mutex
	all map[topology.Node]*drainTime
}

type drainTime struct {
	until time.Time
	timer *time.Timer
}

// newDrainingServers returns no servers. over is called from another goroutine, without locks, when the time of a
// server is over.
func newDrainingServers(over func(at topology.Node)) *drainingServers {
	return &drainingServers{over: over, all: map[topology.Node]*drainTime{}}
}

// Update says which servers have left and still owe replies, and how long each of them has from now. A server that has
// left before keeps its end, unless the new one is sooner: it may have died meanwhile. The drain of a server that is
// not named is called off.
func (s *drainingServers) Update(left map[topology.Node]time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, f := range s.all {
		if _, still := left[at]; !still {
			f.timer.Stop()
			delete(s.all, at)
		}
	}
	for at, d := range left {
		until := time.Now().Add(d)
		f := s.all[at]
		if f != nil && !until.Before(f.until) {
			continue
		}
		if f != nil {
			f.timer.Stop()
		}
		next := &drainTime{until: until}
		next.timer = time.AfterFunc(d, func() { s.end(at, next) })
		s.all[at] = next
	}
}

// end ends a drain, unless it has been called off.
func (s *drainingServers) end(at topology.Node, f *drainTime) {
	s.mu.Lock()
	valid := s.all[at] == f
	if valid {
		delete(s.all, at)
	}
	s.mu.Unlock()
	if valid {
		s.over(at)
	}
}
