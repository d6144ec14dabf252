// Package jobs runs the short tasks of the lock engines on one bounded pool. Each task has a class, and each class has
// workers of its own: a backlog of clean-up takes no worker from the renewals of leases.
//
//	engine ──► Queue ──┐             ┌─ Renewal ──► workers
//	engine ──► Queue ──┼─ by class ──┼─ Loss     ──► workers ──► the pool
//	engine ──► Queue ──┘             └─ …        ──► workers
//
// A class serves its queues in turn, one task each, and one queue has at most half of the workers of a class. So the
// backlog of one engine does not hold up another. A semaphore for each class has no such turns, and a waiting goroutine
// for each task.
//
// Invariants:
//   - Submit does not block and never refuses a task before Close.
//   - The tasks of one class of one queue begin in the order in which they were submitted.
//   - Every step is O(1), whatever the backlog.
//
// A task may do one round trip to Redis. It never waits for a lock. Only a task of Confirm waits for replicas.
package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/panjf2000/ants/v2"
)

// Class says what a task is for.
type Class uint8

// The classes. Each has workers of its own.
const (
	Renewal  Class = iota // keeps leases, and places in a fair queue, alive
	Loss                  // tells of lost leases
	HandOver              // an attempt of a waiter whose turn it may be
	Attempt               // other attempts
	CleanUp               // releases the locks and places that clients have left behind
	Confirm               // waits for replicas, for half a second at most
	List                  // lists locks
	classes
)

// sizes is the number of workers of each class of a pool, from the number for attempts. Lists are made one at a time:
// each takes much computing, and as many workers as processors would leave the event loops none.
func sizes(workers int) [classes]int {
	return [classes]int{
		Renewal: workers / 2, Loss: workers / 16, HandOver: workers, Attempt: workers, CleanUp: workers / 4,
		Confirm: workers, List: 1,
	}
}

// Source gives each engine a Runner. A Pool is the Source of the product.
type Source interface {
	// NewRunner returns the runner of one engine. crashed is called with the value of a task's panic.
	NewRunner(crashed func(any)) Runner
}

// Runner runs the tasks of one engine; see Queue, which is the Runner of the product.
type Runner interface {
	Submit(c Class, task func())
	After(d time.Duration, c Class, task func()) Timer
	Wait(ctx context.Context)
}

// NewRunner implements Source.
func (p *Pool) NewRunner(crashed func(any)) Runner { return p.NewQueue(crashed) }

// Pool is the workers that all queues share.
type Pool struct {
	ants *ants.Pool

	mu      sync.Mutex // guards the fields below and all queues and lines
	classes [classes]class
	closed  bool
}

// class is the workers for one kind of task.
type class struct {
	limit   int // of workers
	share   int // of them that one queue may have
	workers int
	ready   fifo[*line] // lines with a task that may begin, the next first
}

// line is the tasks of one class of one queue. It is in class.ready exactly when it has a task and fewer running than
// its share.
type line struct {
	queue   *Queue
	class   *class
	tasks   fifo[func()]
	running int
	listed  bool // in class.ready
}

// Queue is the tasks of one engine.
type Queue struct {
	pool    *Pool
	crashed func(any)
	tasks   Count         // that have not ended
	lines   [classes]line // guarded by Pool.mu
}

// New makes a pool with that number of workers for attempts. The other classes have workers in proportion, at least one
// each.
func New(workers int) (*Pool, error) {
	p := &Pool{}
	total := 0
	for c, n := range sizes(workers) {
		n = max(n, 1)
		p.classes[c].limit, p.classes[c].share = n, max(n/2, 1)
		total += n
	}
	var err error
	if p.ants, err = ants.NewPool(total, ants.WithNonblocking(true)); err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return p, nil
}

// Close drops the tasks that have not begun and waits for the others, for as long as limit.
func (p *Pool) Close(limit time.Duration) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	if err := p.ants.ReleaseTimeout(limit); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	return nil
}

// NewQueue makes the queue of one engine. crashed is called with the value of a task's panic.
func (p *Pool) NewQueue(crashed func(any)) *Queue {
	q := &Queue{pool: p, crashed: crashed}
	for c := range q.lines {
		q.lines[c].queue, q.lines[c].class = q, &p.classes[c]
	}
	return q
}

// Submit has a worker of the class run the task, behind those of this queue that wait for one. It does not block.
func (q *Queue) Submit(c Class, task func()) {
	p := q.pool
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	l := &q.lines[c]
	l.tasks.push(task)
	q.tasks.Begin()
	start := l.offerLocked()
	p.mu.Unlock()
	if start {
		p.start(l.class)
	}
}

// After submits the task when d has passed. Wait does not wait for it until then.
func (q *Queue) After(d time.Duration, c Class, task func()) Timer {
	return time.AfterFunc(d, func() { q.Submit(c, task) })
}

// Wait returns when no task is left, or ctx ends.
func (q *Queue) Wait(ctx context.Context) { q.tasks.Wait(ctx) }

// offerLocked lists the line if a task of it may begin, and reports whether that takes another worker.
func (l *line) offerLocked() (start bool) {
	c := l.class
	if !l.listed && l.tasks.len() > 0 && l.running < c.share {
		l.listed = true
		c.ready.push(l)
	}
	if c.ready.len() == 0 || c.workers == c.limit {
		return false
	}
	c.workers++
	return true
}

// start adds a worker, which has been counted. The pool has a place for every worker, but one that has just run out of
// tasks may not have left its place yet.
func (p *Pool) start(c *class) {
	if err := p.ants.Submit(func() { p.serve(c) }); err != nil && !p.ants.IsClosed() {
		time.AfterFunc(startAgain, func() { p.start(c) })
	}
}

// startAgain is how long a worker that has run out of tasks may take to leave its place.
const startAgain = time.Millisecond

// serve is a worker: it runs one task after the other until none of its class may begin.
func (p *Pool) serve(c *class) {
	for {
		l, task := p.next(c)
		if task == nil {
			return
		}
		l.queue.run(task)
		l.queue.tasks.End()
		p.mu.Lock()
		l.running--
		start := l.offerLocked()
		p.mu.Unlock()
		if start {
			p.start(c)
		}
	}
}

// next takes the task whose turn it is. nil: there is none, and the worker has been counted out.
func (p *Pool) next(c *class) (*line, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.ready.len() == 0 || p.closed {
		c.workers--
		return nil, nil
	}
	l := c.ready.pop()
	l.listed = false
	task := l.tasks.pop()
	l.running++
	if l.tasks.len() > 0 && l.running < c.share {
		l.listed = true
		c.ready.push(l)
	}
	return l, task
}

func (q *Queue) run(task func()) {
	defer func() {
		if r := recover(); r != nil {
			q.crashed(r)
		}
	}()
	task()
}
