package upstream

import (
	"slices"
	"sync"
	"time"
)

// pins is the bounded pool of pinned connections.
type pins struct {
	u *Upstream

	mu      sync.Mutex
	idle    map[Identity][]*Pin
	open    int        // connections that exist, idle ones included
	waiting []*pinWait // in order of asking
	closed  bool
}

// pinWait is one session that waits for a pin. It is settled once: by a pin, by its timer or by being withdrawn.
type pinWait struct {
	id      Identity
	deliver func(*Pin)
	timer   *time.Timer
}

// Acquire returns a pin of this identity, or nil if all are in use. The pin may still be connecting: what is appended
// waits for it, and is reported as lost and unsent if Redis cannot be reached.
func (u *Upstream) Acquire(id Identity) *Pin { return u.pins.acquire(id) }

// AwaitPin queues for a pin. deliver is called once, from another goroutine: with the pin, or with nil after the wait
// limit. The returned function withdraws the request; it reports false if deliver has been or is being called.
func (u *Upstream) AwaitPin(id Identity, deliver func(*Pin)) (withdraw func() bool) {
	return u.pins.await(id, deliver)
}

func (ps *pins) acquire(id Identity) *Pin {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.waiting) > 0 {
		return nil
	}
	return ps.acquireLocked(id)
}

func (ps *pins) acquireLocked(id Identity) *Pin {
	if ps.closed {
		return nil
	}
	if list := ps.idle[id]; len(list) > 0 {
		p := list[len(list)-1]
		ps.setIdleLocked(id, list[:len(list)-1])
		return p
	}
	if ps.open >= ps.u.opts.MaxPins && !ps.evictLocked() {
		return nil
	}
	ps.open++
	p := &Pin{pool: ps, id: id, stream: newStream(), stop: make(chan struct{})}
	ps.u.wg.Go(func() { p.run(ps.u) })
	return p
}

// evictLocked closes an idle pin of some other identity to make room.
func (ps *pins) evictLocked() bool {
	for id, list := range ps.idle {
		p := list[0]
		ps.setIdleLocked(id, list[1:])
		ps.closeLocked(p)
		return true
	}
	return false
}

func (ps *pins) setIdleLocked(id Identity, list []*Pin) {
	if len(list) == 0 {
		delete(ps.idle, id)
		return
	}
	ps.idle[id] = list
}

// closeLocked ends an open pin that is not in the idle list.
func (ps *pins) closeLocked(p *Pin) {
	if !p.dead {
		p.dead = true
		ps.open--
	}
	p.once.Do(func() { close(p.stop) })
}

func (ps *pins) await(id Identity, deliver func(*Pin)) func() bool {
	w := &pinWait{id: id, deliver: deliver}
	withdraw := func() bool {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		i := slices.Index(ps.waiting, w)
		if i < 0 {
			return false
		}
		ps.waiting = slices.Delete(ps.waiting, i, i+1)
		w.timer.Stop()
		return true
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	w.timer = time.AfterFunc(ps.u.opts.PinWait, func() {
		if withdraw() {
			deliver(nil)
		}
	})
	ps.waiting = append(ps.waiting, w)
	return withdraw
}

// put takes a clean pin back.
func (ps *pins) put(p *Pin) {
	ps.mu.Lock()
	switch {
	case p.dead:
	case ps.closed:
		ps.closeLocked(p)
	default:
		p.since = time.Now()
		ps.idle[p.id] = append(ps.idle[p.id], p)
	}
	ps.serveLocked()
}

// drop forgets a pin that its session has closed.
func (ps *pins) drop(p *Pin) {
	ps.mu.Lock()
	ps.closeLocked(p)
	ps.serveLocked()
}

// died forgets a pin whose connection has ended by itself.
func (ps *pins) died(p *Pin) {
	ps.mu.Lock()
	if i := slices.Index(ps.idle[p.id], p); i >= 0 {
		ps.setIdleLocked(p.id, slices.Delete(ps.idle[p.id], i, i+1))
	}
	ps.closeLocked(p)
	ps.serveLocked()
}

// serveLocked gives pins to those who wait, unlocks, and tells them.
func (ps *pins) serveLocked() {
	type gift struct {
		w *pinWait
		p *Pin
	}
	var gifts []gift
	for len(ps.waiting) > 0 {
		w := ps.waiting[0]
		p := ps.acquireLocked(w.id)
		if p == nil {
			break
		}
		ps.waiting = slices.Delete(ps.waiting, 0, 1)
		w.timer.Stop()
		gifts = append(gifts, gift{w, p})
	}
	ps.mu.Unlock()
	for _, g := range gifts {
		// A goroutine of its own, since the caller may hold a session's lock and the receiver takes another's.
		ps.u.wg.Go(func() { g.w.deliver(g.p) })
	}
}

// trim closes pins that have been idle since before t.
func (ps *pins) trim(t time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for id, list := range ps.idle {
		keep := slices.IndexFunc(list, func(p *Pin) bool { return !p.since.Before(t) })
		if keep < 0 {
			keep = len(list)
		}
		for _, p := range list[:keep] {
			ps.closeLocked(p)
		}
		ps.setIdleLocked(id, slices.Clone(list[keep:]))
	}
}

// dropIdle closes the idle pins of some identities.
func (ps *pins) dropIdle(of func(Identity) bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for id, list := range ps.idle {
		if of(id) {
			for _, p := range list {
				ps.closeLocked(p)
			}
			ps.setIdleLocked(id, nil)
		}
	}
}

func (ps *pins) close() {
	ps.trim(time.Now().Add(time.Hour))
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
}

// count returns how many pins exist and how many of them are idle.
func (ps *pins) count() (open, idle int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, list := range ps.idle {
		idle += len(list)
	}
	return ps.open, idle
}
