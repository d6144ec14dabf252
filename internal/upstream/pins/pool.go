// Package pins is the bounded pools of connections that one session at a time has for itself: one pool for work, and
// one for logins.
//
// # Goroutines
//
// Pin.run, one for each pin, connects it and serves it until it ends; another one hands a pin to a session that has
// waited.
package pins

import (
	"errors"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Why a session gets no pin.
var (
	// ErrNone says that all pins are in use.
	ErrNone = errors.New("no upstream connection is free")
	// ErrShare says that the clients of the address have its whole share.
	ErrShare = errors.New("the clients of this address have all upstream connections that one address may have")
)

// An Ask is a request for a pin.
type Ask struct {
	ID dial.Identity

	// At is the server that the pin leads to.
	At topology.Node

	// Owner is the account of the pin: the client's address.
	Owner string

	// Login asks for a connection on which Redis judges an identity change. These are few, and apart from all others,
	// so that work never keeps a client from logging in.
	Login bool

	// Anew says that the identity change replaces the user. If Redis does not accept the present one any more, a
	// connection without credentials will do (Pin.Bare).
	Anew bool

	// Patient leaves the identity's spare pin to other requests.
	Patient bool
}

// Options of Pins. All are required.
type Options struct {
	Dialer *dial.Dialer
	Own    func(dial.Identity) bool // the credentials are the proxy's own
	Spawn  func(func())             // runs a goroutine and waits for its end
	Limits Limits                   // Change replaces them
}

// Pins are all pins of a proxy. All methods may be called from any goroutine.
type Pins struct {
	opts Options // immutable
	// Without them, the readers of 64 busy pins kept event loops from their processors for half a second.
	turns admission.Turns

	mu     sync.Mutex
	all    map[*Pin]struct{} // whose connections have not ended
	work   pool
	logins pool
	closed bool
}

// New returns pools without connections.
func New(opts Options) *Pins {
	l := opts.Limits
	return &Pins{
		opts: opts, turns: admission.NewTurns(), all: map[*Pin]struct{}{}, work: newPool(l.Max, l.Wait),
		logins: newPool(l.MaxLogins, l.LoginWait),
	}
}

// pool is one of them. Its fields are guarded by Pins.mu.
type pool struct {
	max      int
	patience time.Duration
	open     int               // connections that exist, idle ones included
	places   *admission.Places // of pins that sessions have
	idle     *admission.Idle[dial.Target, *Pin]
	waiting  *admission.Queue[*pinWait]
}

func newPool(size int, patience time.Duration) pool {
	return pool{
		max: size, patience: patience, places: admission.NewPlaces(size, admission.Share(size)),
		idle: admission.NewIdle[dial.Target, *Pin](), waiting: admission.NewQueue[*pinWait](),
	}
}

// pinWait is one session that waits for a pin. It is settled once: by a pin, by its timer or by being withdrawn.
type pinWait struct {
	ask     Ask
	deliver func(*Pin, error)
	timer   *time.Timer
}

// Acquire returns a pin, or nil if there is none for the request now. The pin may still be connecting. Its requests
// wait for as long as its observer does, and are reported as unsent if Redis refuses the connection.
func (ps *Pins) Acquire(a Ask) *Pin {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of(a)
	if ps.closed || p.places.Take(a.Owner) != admission.Granted {
		return nil
	}
	return ps.giveLocked(p, a)
}

// Await queues for a pin; addresses have their turns one after the other. deliver is called once, from another
// goroutine: with the pin, or, after the wait limit, with the reason why there is none. The returned function withdraws
// the request; it reports false if deliver has been or is being called.
func (ps *Pins) Await(a Ask, deliver func(*Pin, error)) (withdraw func() bool) {
	w := &pinWait{ask: a, deliver: deliver}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.of(a)
	ticket := p.waiting.Add(a.Owner, w)
	withdraw = func() bool {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		w.timer.Stop()
		return p.waiting.Remove(ticket)
	}
	w.timer = time.AfterFunc(p.patience, func() {
		if withdraw() {
			deliver(nil, ps.why(a))
		}
	})
	return withdraw
}

func (ps *Pins) of(a Ask) *pool {
	if a.Login {
		return &ps.logins
	}
	return &ps.work
}

// why returns the reason why a request gets no pin.
func (ps *Pins) why(a Ask) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.of(a).places.Ask(a.Owner) == admission.OverShare {
		return ErrShare
	}
	return ErrNone
}

// giveLocked returns a pin for which a place has been taken.
func (ps *Pins) giveLocked(pool *pool, a Ask) *Pin {
	var p *Pin
	ok, t := false, dial.Target{At: a.At, ID: a.ID}
	if !a.Patient || pool.idle.Count(t) > 1 || pool.open >= pool.max {
		for p, ok = pool.idle.Take(t); ok && p.isElsewhere(); p, ok = pool.idle.Take(t) {
			ps.closeLocked(p) // its server has moved, and the connection is about to end
		}
	}
	if !ok {
		if pool.open >= pool.max {
			ps.evictLocked(pool, a.Owner)
		}
		p = ps.connectLocked(pool, t, a.Anew)
	}
	p.owner, p.lent = a.Owner, true
	p.anew.Store(a.Anew)
	if pool == &ps.work && !a.Patient {
		ps.spareLocked(t, a.Owner)
	}
	return p
}

// Spare connects a pin ahead of need for an identity in use, if it has none that is idle: a command that blocks is then
// at Redis as soon as it would be from a client that is connected there.
func (ps *Pins) Spare(t dial.Target, owner string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.spareLocked(t, owner)
}

func (ps *Pins) spareLocked(t dial.Target, owner string) {
	pool := &ps.work
	if ps.closed || pool.open >= pool.max || pool.idle.Count(t) > 0 ||
		pool.places.Beyond(owner, pool.idle.CountOf(owner)+1) {
		return
	}
	p := ps.connectLocked(pool, t, false)
	p.owner, p.since = owner, time.Now()
	pool.idle.Add(t, p, owner)
}

func (ps *Pins) connectLocked(pool *pool, t dial.Target, anew bool) *Pin {
	pool.open++
	p := &Pin{
		pins: ps, pool: pool, login: pool == &ps.logins, target: t, Stream: stream.NewLazy(), stop: make(chan struct{}),
	}
	p.anew.Store(anew)
	ps.all[p] = struct{}{}
	ps.opts.Spawn(func() { p.run() })
	return p
}

// evictLocked closes an idle pin to free a place. There is one if all connections exist and a place was free.
func (ps *Pins) evictLocked(pool *pool, owner string) {
	if p, ok := pool.idle.Evict(owner); ok {
		ps.closeLocked(p)
	}
}

// closeLocked ends a pin that is not in the idle list.
func (ps *Pins) closeLocked(p *Pin) {
	if !p.dead {
		p.dead = true
		p.pool.open--
		delete(ps.all, p)
	}
	p.once.Do(func() { close(p.stop) })
}

// returnLocked frees the place of a pin.
func (ps *Pins) returnLocked(p *Pin) {
	if p.lent {
		p.lent = false
		p.pool.places.Return(p.owner)
	}
}

// keep moves a pin that a session has from the pool for logins to that for work. false: there is no place for its
// owner.
func (ps *Pins) keep(p *Pin) bool {
	ps.mu.Lock()
	work := &ps.work
	if p.pool == work || p.dead {
		ps.mu.Unlock()
		return true
	}
	if work.places.Take(p.owner) != admission.Granted {
		ps.mu.Unlock()
		return false
	}
	if work.open >= work.max {
		ps.evictLocked(work, p.owner)
	}
	p.pool.places.Return(p.owner)
	p.pool.open--
	p.pool = work
	work.open++
	ps.serveLocked(&ps.logins)
	return true
}

// put returns a clean pin to the pool.
func (ps *Pins) put(p *Pin) {
	ps.mu.Lock()
	ps.returnLocked(p)
	switch {
	case p.dead:
	case ps.closed, p.leaves, p.pool.open > p.pool.max: // the limit has become smaller
		ps.closeLocked(p)
	default:
		p.since = time.Now()
		p.pool.idle.Add(p.target, p, p.owner)
		if idle := p.pool.idle; p.pool.places.Beyond(p.owner, idle.CountOf(p.owner)) {
			ps.evictLocked(p.pool, p.owner)
		}
	}
	ps.serveLocked(p.pool)
}

// drop forgets a pin that its session has closed.
func (ps *Pins) drop(p *Pin) {
	ps.mu.Lock()
	ps.returnLocked(p)
	ps.closeLocked(p)
	ps.serveLocked(p.pool)
}

// died forgets a pin whose connection has ended by itself.
func (ps *Pins) died(p *Pin) {
	ps.mu.Lock()
	p.pool.idle.Remove(p)
	ps.closeLocked(p)
	ps.serveLocked(p.pool)
}

// serveLocked gives pins to waiting sessions, unlocks, and tells them.
func (ps *Pins) serveLocked(pool *pool) {
	type gift struct {
		w *pinWait
		p *Pin
	}
	var gifts []gift
	for !ps.closed && !pool.places.Full() {
		w, ok := pool.waiting.Next(func(owner string) bool { return pool.places.Ask(owner) == admission.Granted })
		if !ok {
			break
		}
		w.timer.Stop()
		pool.places.Force(w.ask.Owner)
		gifts = append(gifts, gift{w, ps.giveLocked(pool, w.ask)})
	}
	ps.mu.Unlock()
	for _, g := range gifts {
		// A goroutine of its own, since the caller may hold a session's lock and the receiver takes another's.
		ps.opts.Spawn(func() { g.w.deliver(g.p, nil) })
	}
}

// Trim closes pins that have been idle since before t, but for one of each identity in use.
func (ps *Pins) Trim(t time.Time, inUse map[dial.Target]bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropIdleLocked(func(p *Pin) bool {
		return p.since.Before(t) && (!inUse[p.target] || p.pool == &ps.logins || p.pool.idle.Count(p.target) > 1)
	})
}

// DropBare is called when Redis has begun to demand a login of new connections. Pins without credentials serve no
// further session: idle ones are closed, and those of sessions do not return to the pool.
func (ps *Pins) DropBare() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropIdleLocked(func(p *Pin) bool { return !p.target.ID.Authenticated() })
	for p := range ps.all {
		p.leaves = p.leaves || p.lent // whose identity is the session's to know
	}
}

// dropIdleLocked closes idle pins.
func (ps *Pins) dropIdleLocked(which func(*Pin) bool) {
	for _, pool := range []*pool{&ps.work, &ps.logins} {
		for _, p := range pool.idle.Values() {
			if which(p) {
				pool.idle.Remove(p)
				ps.closeLocked(p)
			}
		}
	}
}

// Close ends idle pins. The other pins end when their sessions release them.
func (ps *Pins) Close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.closed = true
	ps.dropIdleLocked(func(*Pin) bool { return true })
}

// Status counts the connections of one kind.
type Status struct {
	Open  int // connections that exist
	Idle  int // idle ones among them
	Ready int // idle ones on which a command is sent at once
}

// Status counts the pins for work and those for logins.
func (ps *Pins) Status() (work, logins Status) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.work.status(), ps.logins.status()
}

func (p *pool) status() Status {
	s := Status{Open: p.open, Idle: p.idle.Len()}
	for _, pin := range p.idle.Values() {
		if pin.IsReady() {
			s.Ready++
		}
	}
	return s
}

// Limits say how many pins there may be, and how long a session waits for one. All are required.
// The clients of one address get three quarters of the pins for work.
type Limits struct {
	Max       int           // pins for work
	Wait      time.Duration // for one of them
	MaxLogins int           // connections on which Redis judges identity changes
	LoginWait time.Duration // for one of them
}

// Change replaces the limits. A session keeps the pin that it has, also beyond the new limits. New waits apply to
// requests to come.
func (ps *Pins) Change(l Limits) {
	ps.mu.Lock()
	ps.resizeLocked(&ps.work, l.Max, l.Wait)
	ps.serveLocked(&ps.work)
	ps.mu.Lock()
	ps.resizeLocked(&ps.logins, l.MaxLogins, l.LoginWait)
	ps.serveLocked(&ps.logins)
}

// resizeLocked changes a pool, and closes idle pins that are too many.
func (ps *Pins) resizeLocked(pool *pool, size int, patience time.Duration) {
	pool.max, pool.patience = size, patience
	pool.places.Resize(size, admission.Share(size))
	for _, p := range pool.idle.Values() { // the oldest first
		if pool.open <= size && !pool.places.Beyond(p.owner, pool.idle.CountOf(p.owner)) {
			continue
		}
		pool.idle.Remove(p)
		ps.closeLocked(p)
	}
}

// DropAt closes the idle pins that lead to servers that are gone, and returns those of these servers to which others
// lead. No other session gets one of these.
func (ps *Pins) DropAt(gone func(at topology.Node) bool) (used []topology.Node) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropIdleLocked(func(p *Pin) bool { return gone(p.target.At) })
	for p := range ps.all {
		if at := p.target.At; p.lent && gone(at) {
			p.leaves = true
			used = append(used, at)
		}
	}
	return used
}

// EndAt ends the pins that lead to a server. If it is alive, a session keeps a pin on which nothing is outstanding: it
// may be in a transaction.
func (ps *Pins) EndAt(node topology.Node, alive bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.all {
		if p.lent && p.target.At == node && (!alive || p.Outstanding() > 0) {
			p.abort()
		}
	}
}
