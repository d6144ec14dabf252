package locks

import (
	"slices"
	"sync"
	"time"
)

// stalls notes when the machine stood still: then everything is late, and nobody is to blame.
type stalls struct {
	end, done chan struct{}
	once      sync.Once

	mu    sync.Mutex // guards the fields below
	tick  int64      // the latest
	noted []incident
}

const (
	stallTick = 20 * time.Millisecond
	stallFrom = 250 * time.Millisecond // shorter ones are part of a busy machine's day
)

func watchStalls() *stalls {
	s := &stalls{end: make(chan struct{}), done: make(chan struct{}), tick: mono()}
	go s.watch()
	return s
}

func (s *stalls) stop() {
	s.once.Do(func() { close(s.end) })
	<-s.done
}

func (s *stalls) watch() {
	defer close(s.done)
	ticks := time.NewTicker(stallTick)
	defer ticks.Stop()
	for {
		select {
		case <-s.end:
			return
		case <-ticks.C:
			s.look()
		}
	}
}

// look notes what has passed since the latest look, if it is more than it should be.
func (s *stalls) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := mono()
	if now-s.tick > int64(stallFrom) {
		s.noted = append(s.noted, incident{what: "machine stalled", from: s.tick, to: now})
	}
	s.tick = now
}

func (s *stalls) all() []incident {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.noted)
}

// since is how long in all the machine has stood still after that moment, until now.
func (s *stalls) since(from int64) (sum int64) {
	s.look() // one may have ended just now
	for _, in := range s.all() {
		sum += max(0, in.to-max(in.from, from))
	}
	return sum
}
