package topology

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// primaryView is what is known about a primary at one time. It never changes.
type primaryView struct {
	Address string // host:port at which the primary is reached

	place Place
	leave context.CancelFunc // ends place.left
}

// Primary is one server that serves all keys and moves from process to process. All methods may be called from any
// goroutine.
type Primary struct {
	view  atomic.Pointer[primaryView]
	doubt chan struct{} // size 1, never closed

	publish sync.Mutex // one Publish at a time

	mu      sync.Mutex // guards the fields below
	refuted string     // the address at which a process was found that is no primary
	when    time.Time  // of that
	unknown error      // why there is no view
}

// ErrUnknown says that the address of the primary is not known yet.
var ErrUnknown = errors.New("the address of the primary is not known yet")

// NewPrimary returns a primary whose place is not known.
func NewPrimary() *Primary {
	return &Primary{doubt: make(chan struct{}, 1), unknown: ErrUnknown}
}

// Resolve returns where the primary is now.
func (p *Primary) Resolve(Node) (Place, error) {
	if v := p.view.Load(); v != nil {
		return v.place, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return Place{}, p.unknown
}

// View returns what is known; nil: nothing.
func (p *Primary) View() *primaryView { return p.view.Load() }

// Publish replaces the address, and reports whether it differs from the present one. Connections to the old one have
// left then.
func (p *Primary) Publish(addr string) (moved bool) {
	p.publish.Lock()
	defer p.publish.Unlock()
	old := p.view.Load()
	if old != nil && old.Address == addr {
		return false
	}
	next := &primaryView{Address: addr}
	left, leave := context.WithCancel(context.Background())
	next.place = Place{Network: "tcp", Address: addr, Primary: true, left: left}
	next.leave = leave
	p.mu.Lock()
	p.refuted = ""
	p.mu.Unlock()
	p.view.Store(next)
	if old != nil {
		old.leave()
	}
	return true
}

// Unknown notes why there is no view, for messages.
func (p *Primary) Unknown(err error) {
	p.mu.Lock()
	p.unknown = err
	p.mu.Unlock()
}

// ErrNotPrimary says that a process was reached which is no primary.
var ErrNotPrimary = errors.New("the process at the address of the primary is not a primary")

// Doubt says that the server was not found at a place, for the given reason: it may have moved.
func (p *Primary) Doubt(_ Node, at Place, why error) {
	p.mu.Lock()
	if errors.Is(why, ErrNotPrimary) {
		p.refuted, p.when = at.Address, time.Now()
	}
	p.mu.Unlock()
	select {
	case p.doubt <- struct{}{}:
	default:
	}
}

// Doubts has a value after a Doubt. It is never closed.
func (p *Primary) Doubts() <-chan struct{} { return p.doubt }

// refutedFor is the time for which a process that is no primary speaks against the view.
const refutedFor = 5 * time.Second

// Refuted reports whether the process at the address of the view was found to be no primary lately.
func (p *Primary) Refuted() bool {
	v := p.view.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	return v != nil && p.refuted == v.Address && time.Since(p.when) < refutedFor
}
