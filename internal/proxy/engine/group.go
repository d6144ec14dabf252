package engine

import "sync"

// A Group starts goroutines and waits for them. Unlike with a sync.WaitGroup, Start may be called while Wait blocks.
// After Wait has seen that no task is running, Start returns false: the groups of sync and x/sync do not refuse such a
// task. The zero value is ready.
type Group struct {
	mu   sync.Mutex // guards the fields below
	n    int
	over bool
	idle chan struct{} // closed when over; nil: no goroutine waits
}

// Start runs the task in a goroutine. If the group is over, it returns false and the task does not run.
func (g *Group) Start(task func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return false
	}
	g.n++
	go func() {
		defer g.done()
		task()
	}()
	return true
}

func (g *Group) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.idle != nil {
		g.over = true
		close(g.idle)
	}
}

// Wait returns when no task is running. It is called once.
func (g *Group) Wait() {
	g.mu.Lock()
	if g.n == 0 {
		g.over = true
		g.mu.Unlock()
		return
	}
	g.idle = make(chan struct{})
	g.mu.Unlock()
	<-g.idle
}
