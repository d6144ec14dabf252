package topology

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Primary is one server that serves all keys and moves from process to process. All methods may be called from any
// goroutine.
type Primary struct {
	at    atomic.Pointer[leaving] // nil: it is not known. It never changes
	doubt chan struct{}           // size 1, never closed

	mu      sync.Mutex
	unknown error // why the address is not known
}

// ErrUnknown says that the address of the primary is not known yet.
var ErrUnknown = errors.New("the address of the primary is not known yet")

// NewPrimary returns a primary whose place is not known.
func NewPrimary() *Primary {
	return &Primary{doubt: make(chan struct{}, 1), unknown: ErrUnknown}
}

// Resolve returns where the primary is now.
func (p *Primary) Resolve(Node) (Place, error) {
	if at := p.at.Load(); at != nil {
		return at.place, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return Place{}, p.unknown
}

// Address is where the primary is reached; "": it is not known.
func (p *Primary) Address() string {
	if at := p.at.Load(); at != nil {
		return at.place.Address
	}
	return ""
}

// Publish replaces the address, and reports whether it differs from the present one. Connections to the old one have
// left then. Only one goroutine calls it.
func (p *Primary) Publish(addr string) (moved bool) {
	old := p.at.Load()
	if old != nil && old.place.Address == addr {
		return false
	}
	left, leave := context.WithCancel(context.Background())
	p.at.Store(&leaving{Place{Network: "tcp", Address: addr, Primary: true, left: left}, leave})
	if old != nil {
		old.leave()
	}
	return true
}

// Unknown notes why the address is not known, for messages.
func (p *Primary) Unknown(err error) {
	p.mu.Lock()
	p.unknown = err
	p.mu.Unlock()
}

// ErrNotPrimary says that a process was reached which is no primary.
var ErrNotPrimary = errors.New("the process at the address of the primary is not a primary")

// Doubt says that the server was not found at an address: it may have moved.
func (p *Primary) Doubt(string) {
	select {
	case p.doubt <- struct{}{}:
	default:
	}
}

// Doubts has a value after a Doubt. It is never closed.
func (p *Primary) Doubts() <-chan struct{} { return p.doubt }
