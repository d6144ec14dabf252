package proxy

import "sync"

// crew is goroutines whose end somebody waits for. Unlike a WaitGroup it may be joined while it is waited for; once it was found
// to be over nobody joins it any more. The zero value is ready.
type crew struct {
	mu   sync.Mutex // guards the fields below
	n    int
	over bool
	idle chan struct{} // closed when over; nil: nobody waits
}

// start runs the task in a goroutine. It reports false if the crew is over: then the task does not run.
func (c *crew) start(task func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.n++
	go func() {
		defer c.leave()
		task()
	}()
	return true
}

func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.idle != nil {
		c.over = true
		close(c.idle)
	}
}

// wait returns when no task is running. It is called once.
func (c *crew) wait() {
	c.mu.Lock()
	if c.n == 0 {
		c.over = true
		c.mu.Unlock()
		return
	}
	c.idle = make(chan struct{})
	c.mu.Unlock()
	<-c.idle
}
