package upstream

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// failoverWork is the time that a failover takes when the primary has been found to be down: the votes, the promotion,
// and its spreading.
const failoverWork = 3 * time.Second

// leastLease returns the shortest lease that outlives a failover, if a primary is found to be down after a time. A
// lease is renewed every third, so two thirds are left at worst when the primary fails.
func leastLease(downAfter time.Duration) time.Duration { return (downAfter + failoverWork) * 3 / 2 }

// leaseWarner warns when a lease is too short for a failover. All methods may be called from any goroutine.
//
// It compares the lease of locks with the time that a failover takes. A lock whose lease ends before a replica is
// promoted is lost, even if the replica knows it.
type leaseWarner struct {
	log *zap.Logger

	mu        sync.Mutex
	lease     time.Duration // 0: there are no locks
	downAfter time.Duration // 0: it is not known, or there is no failover
}

// Lease notes a change of the lease.
func (w *leaseWarner) Lease(d time.Duration) { w.note(&w.lease, d) }

// DownAfter notes a change of the time after which a silent primary is taken for down.
func (w *leaseWarner) DownAfter(d time.Duration) { w.note(&w.downAfter, d) }

func (w *leaseWarner) note(which *time.Duration, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *which == d {
		return
	}
	*which = d
	if least := leastLease(w.downAfter); w.downAfter != 0 && w.lease != 0 && w.lease < least {
		w.log.Warn("a failover may take longer than the lease of locks, which are lost then",
			logging.Seconds("lock.lease", w.lease), logging.Seconds("down_after", w.downAfter),
			logging.Seconds("least_lease", least))
	}
}
