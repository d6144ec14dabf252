package upstream

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// drains are those of the servers that have left a cluster's view: each has time for the replies that it has not sent
// yet. A server that leaves, comes back and leaves again has a whole drain the second time.
type drains map[topology.Node]drain

type drain struct {
	until time.Time
	timer *time.Timer
}

// update says which servers have left and still owe replies, and how long each of them has from now. A server that has
// left before keeps its end, unless the new one is sooner: it may have died meanwhile. The drain of a server that is
// not named is called off. over is called from another goroutine when the time of a server is over, or has just been
// called off.
func (s drains) update(left map[topology.Node]time.Duration, over func(at topology.Node)) {
	for at, d := range s {
		if _, still := left[at]; !still {
			d.timer.Stop()
			delete(s, at)
		}
	}
	now := time.Now()
	for at, limit := range left {
		d, known := s[at]
		if known && now.Before(d.until) && !now.Add(limit).Before(d.until) {
			continue
		}
		if known {
			d.timer.Stop()
		}
		s[at] = drain{now.Add(limit), time.AfterFunc(limit, func() { over(at) })}
	}
}
