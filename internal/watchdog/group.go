package watchdog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
)

// group has the leases whose renewals may share a batch. Its fields are guarded by Watchdog.mu.
type group struct {
	key     Group
	leases  int  // tracked leases; at 0 the group leaves Watchdog.groups
	ready   due  // renewals that are due, and void elements to be skipped
	jobs    int  // jobs at work or handed to the pool
	failing bool // the latest batch failed: only the change is logged
}

// due is renewals that are due, as a heap: the lease that ends first is renewed first. In the order in which they fell
// due, a crowd of long leases would cost short ones theirs.
type due []renewalDue

type renewalDue struct {
	deadline time.Duration // when it fell due; of an element that is not void it can only have become shorter
	lease    *Lease
}

func (d *due) push(l *Lease) {
	all := append(*d, renewalDue{l.deadline, l})
	for i := len(all) - 1; i > 0; {
		parent := (i - 1) / 2
		if all[parent].deadline <= all[i].deadline {
			break
		}
		all[i], all[parent] = all[parent], all[i]
		i = parent
	}
	*d = all
}

func (d *due) pop() *Lease {
	all := *d
	l, last := all[0].lease, len(all)-1
	all[0], all[last] = all[last], renewalDue{}
	all = all[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c < min(2*i+3, last); c++ {
			if all[c].deadline < all[least].deadline {
				least = c
			}
		}
		if least == i {
			break
		}
		all[i], all[least] = all[least], all[i]
		i = least
	}
	if *d = all; last == 0 {
		*d = nil // a burst must not keep its memory
	}
	return l
}

// batch is a job's working memory, for one batch after the other.
type batch struct {
	leases   []*Lease
	renewals []Renewal
	sent     time.Duration // before the round trip
	limit    time.Duration // when the round trip is given up
	losses   []loss
	thens    []func()
}

func (w *Watchdog) joinLocked(key Group) *group {
	g := w.groups[key]
	if g == nil {
		g = &group{key: key}
		w.groups[key] = g
	}
	g.leases++
	return g
}

// leaveLocked removes a lease from the count. The last lease removes the group.
func (w *Watchdog) leaveLocked(g *group) {
	if g.leases--; g.leases == 0 {
		delete(w.groups, g.key)
	}
}

// serve is the job: it renews batch after batch until nothing of the group is due.
func (w *Watchdog) serve(ctx context.Context, g *group) {
	b := &batch{}
	for w.take(ctx, g, b) {
		limited, cancel := context.WithDeadline(ctx, w.base.Add(b.limit))
		verdicts, err := w.opts.Renew(limited, g.key, b.renewals)
		if err == nil && len(verdicts) != len(b.renewals) {
			err = fmt.Errorf("%d verdicts for %d renewals", len(verdicts), len(b.renewals))
		}
		if err != nil {
			verdicts = make([]Verdict, len(b.renewals))
		}
		cancel()
		w.settle(ctx, g, b, verdicts, err)
	}
}

// take fills b with due renewals. False: there are none and the job has ended, in one step, so that a renewal that
// falls due later finds either a job or a free place for one.
func (w *Watchdog) take(ctx context.Context, g *group, b *batch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	b.sent = w.now()
	b.leases, b.renewals, b.losses, b.thens = b.leases[:0], b.renewals[:0], b.losses[:0], b.thens[:0]
	most := min(len(g.ready), w.opts.batchSize)
	b.leases, b.renewals = slices.Grow(b.leases, most), slices.Grow(b.renewals, most)
	shortest := never
	var retry time.Duration
	for ctx.Err() == nil && len(g.ready) > 0 && len(b.leases) < w.opts.batchSize {
		l := g.ready.pop()
		// The deadline may have passed since the renewal fell due; the scheduler will report the loss.
		if l.renewal != queued || l.group != g || b.sent >= l.deadline {
			continue
		}
		ttl := min(l.ttl, l.until-b.sent)
		if l.fixed {
			ttl = l.deadline - b.sent
		}
		ttl = max(ttl, time.Millisecond) // Redis would take zero for "delete"
		l.renewal = inFlight
		b.leases = append(b.leases, l)
		b.renewals = append(b.renewals, Renewal{Of: l.of, TTL: ttl})
		if left := l.deadline - b.sent; left < shortest {
			shortest, retry = left, l.retryAfter()
		}
	}
	// The other half of the remaining time is for another attempt, if this one hangs.
	b.limit = b.sent + min(shortest, max(shortest/2, retry))
	if len(b.leases) == 0 {
		g.jobs--
		return false
	}
	return true
}

// settle writes the verdicts into the leases, reports losses, and continues the calls that waited for the answer.
func (w *Watchdog) settle(ctx context.Context, g *group, b *batch, verdicts []Verdict, err error) {
	w.mu.Lock()
	now := w.now()
	var told Round
	for i, l := range b.leases {
		switch left := l.deadline - now; {
		case verdicts[i] == 0:
			told.Failed++
		case verdicts[i] == Gone:
			told.Gone++
		case l.fixed: // its end is the client's choice, so it is not late
		default:
			if told.Done == 0 || left < told.Margin {
				told.Margin = left
			}
			if told.Done++; left < l.ttl/renewalsPerTTL {
				told.Late++
			}
		}
		void := l.renewal == outdated
		l.renewal = unstarted
		b.thens = append(b.thens, l.then...)
		l.then = nil
		switch {
		case l.over():
			continue
		case void:
		case verdicts[i] == Gone:
			b.losses = append(b.losses, l.loseLocked(ReasonGone))
			continue
		case verdicts[i] == Renewed:
			// Also right if the old deadline has just passed: Redis found the lease unbroken.
			l.extendLocked(b.sent, min(b.renewals[i].TTL, l.ttl)) // less by Shorten
		default:
			l.next = max(now, b.sent+l.retryAfter())
		}
		l.planLocked() // a deadline that has passed is the scheduler's to report
	}
	changed := g.failing != (err != nil)
	g.failing = err != nil
	w.mu.Unlock()

	switch {
	case ctx.Err() != nil: // the end of Run is no failure
	case changed && err != nil:
		w.opts.Logger.Warn("lease renewal fails", zap.Int("locks", len(b.leases)), zap.Error(err))
	case changed:
		w.opts.Logger.Info("lease renewal succeeds again")
	}
	if w.opts.Renewed != nil && ctx.Err() == nil {
		w.opts.Renewed(told)
	}
	w.report(b.losses)
	for _, then := range b.thens {
		then()
	}
}
