package jobs

import (
	"context"
	"sync"
)

// Count counts the work under way. A goroutine can wait until there is none. The zero value counts none.
type Count struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil: no goroutine waits for that
}

// Begin counts one piece of work until End.
func (c *Count) Begin() {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
}

// End ends one Begin.
func (c *Count) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	c.wakeLocked()
}

// Wait returns when no work is under way, or ctx ends.
func (c *Count) Wait(ctx context.Context) {
	c.mu.Lock()
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.wakeLocked()
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (c *Count) wakeLocked() {
	if c.idle != nil && c.n == 0 {
		close(c.idle)
		c.idle = nil
	}
}
