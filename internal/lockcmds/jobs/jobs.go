// Package jobs runs the short tasks of the lock engines. Each engine has a queue of each class, with workers of its own:
// a backlog of clean-up takes no worker from the renewals of leases, and one engine takes none from another.
//
//	engine ──► Queue ──┬─ Renewal ──► up to 32 workers  ──┐
//	                   ├─ Urgent  ──► up to 128 workers ──┼──► goroutines of ants
//	                   ├─ CleanUp ──► up to 32 workers  ──┤
//	                   └─ List    ──► one worker, which waits for its turn among those of all engines
//
// A list is much computing, so lists are made one at a time, and the engines take turns.
//
// Invariants:
//   - Submit does not block and never refuses a task before Close.
//   - The tasks of one class of one queue begin in the order in which they were submitted.
//   - Every step is O(1), amortized, whatever the backlog.
//
// A task does few round trips to Redis, or waits for replicas for half a second. It never waits for a lock.
package jobs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/panjf2000/ants/v2"

	"github.com/lockproxy/lockproxy/internal/admission"
)

// Class says what a task is for.
type Class uint8

// The classes. Each has workers of its own.
const (
	Renewal Class = iota // keeps leases and places in queues alive, tells of lost leases: no crowd of attempts delays it
	Urgent               // hand-overs, other attempts, questions to replicas
	CleanUp              // ends what clients have left behind in Redis
	List                 // lists locks
	classes
)

// workers is how many tasks of a class and a queue run at once. Each is a round trip to Redis, so this many keep it
// busy.
var workers = [classes]int{Renewal: 32, Urgent: 128, CleanUp: 32, List: 1}

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

// Pool has the goroutines of all queues.
type Pool struct {
	ants  *ants.Pool
	lists admission.Turns // one
}

// Queue is the tasks of one engine.
type Queue struct {
	pool    *Pool
	crashed func(any)
	tasks   Count // that have not ended
	lines   [classes]line
}

// line is the tasks of one class.
type line struct {
	most  int             // workers; immutable
	turns admission.Turns // that each task takes; immutable

	mu      sync.Mutex // guards the fields below
	tasks   []func()   // that have not begun
	workers int
}

// New makes a pool.
func New() (*Pool, error) {
	goroutines, err := ants.NewPool(-1) // the queues bound their number
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	return &Pool{ants: goroutines, lists: make(admission.Turns, 1)}, nil
}

// Close drops the tasks that have not begun and waits for the others, for as long as limit.
func (p *Pool) Close(limit time.Duration) error {
	if err := p.ants.ReleaseTimeout(limit); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	return nil
}

// NewRunner implements Source.
func (p *Pool) NewRunner(crashed func(any)) Runner { return p.NewQueue(crashed) }

// NewQueue makes the queue of one engine. crashed is called with the value of a task's panic.
func (p *Pool) NewQueue(crashed func(any)) *Queue {
	q := &Queue{pool: p, crashed: crashed}
	for c := range q.lines {
		q.lines[c].most = workers[c]
	}
	q.lines[List].turns = p.lists
	return q
}

// Submit has a worker of the class run the task, behind those of its line that wait for one. It does not block.
func (q *Queue) Submit(c Class, task func()) {
	if q.pool.ants.IsClosed() {
		return
	}
	q.tasks.Begin()
	if l := &q.lines[c]; l.add(func() { q.run(task) }) {
		_ = q.pool.ants.Submit(func() { l.serve(q.pool) }) // it fails only if the pool is closed meanwhile
	}
}

// After submits the task when d has passed. Wait does not wait for it until then.
func (q *Queue) After(d time.Duration, c Class, task func()) Timer {
	return time.AfterFunc(d, func() { q.Submit(c, task) })
}

// Wait returns when no task is left, or ctx ends.
func (q *Queue) Wait(ctx context.Context) { q.tasks.Wait(ctx) }

func (q *Queue) run(task func()) {
	defer q.tasks.End()
	defer func() {
		if r := recover(); r != nil {
			q.crashed(r)
		}
	}()
	task()
}

// add puts a task at the end, and reports whether that takes another worker.
func (l *line) add(task func()) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks = append(l.tasks, task)
	if start = l.workers < l.most; start {
		l.workers++
	}
	return start
}

// serve is a worker: it runs one task after the other until none is left.
func (l *line) serve(p *Pool) {
	for !p.ants.IsClosed() {
		task := l.next()
		if task == nil {
			return
		}
		l.turns.Take()
		task()
		l.turns.Leave()
	}
}

// next takes the first task. nil: there is none, and the worker has been counted out.
func (l *line) next() (task func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.tasks) == 0 {
		l.tasks = nil // a burst does not keep its memory
		l.workers--
		return nil
	}
	task, l.tasks[0] = l.tasks[0], nil
	l.tasks = l.tasks[1:]
	return task
}
