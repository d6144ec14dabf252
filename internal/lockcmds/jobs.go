package lockcmds

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/zap"
)

// jobs hands short tasks to the pool and keeps those that the pool refuses until there is room. A task may do one
// round trip to Redis; it never waits for a lock.
type jobs struct {
	submitTo func(func()) error // immutable; non-blocking
	log      *zap.Logger        // immutable

	mu      sync.Mutex
	refused []func()      // FIFO: no place in the pool yet
	running int           // tasks in the pool
	idle    chan struct{} // closed when there are no tasks; nil: nobody waits for that
	retry   *time.Timer   // armed while there are refused tasks
}

// refusedPause is how long to wait before a full pool is asked again.
const refusedPause = 5 * time.Millisecond

// submit runs task on the pool, now or as soon as there is room, after those that wait for room already. It never
// blocks.
func (j *jobs) submit(task func()) {
	j.mu.Lock()
	if len(j.refused) > 0 {
		j.refused = append(j.refused, task)
		task = j.popLocked()
	}
	j.running++
	j.mu.Unlock()
	j.offer(task)
}

func (j *jobs) offer(task func()) {
	if err := j.submitTo(func() { j.work(task) }); err != nil {
		j.refuse(err, task)
	}
}

// again offers the pool the first task that has no place yet.
func (j *jobs) again() {
	j.mu.Lock()
	if len(j.refused) == 0 {
		j.mu.Unlock()
		return
	}
	task := j.popLocked()
	j.running++
	j.mu.Unlock()
	j.offer(task)
}

// refuse keeps the tasks that the pool had no room for. A pool that is closed will have none any more.
func (j *jobs) refuse(err error, task func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running--
	if errors.Is(err, ants.ErrPoolClosed) {
		j.refused = nil
	} else {
		j.refused = append([]func(){task}, j.refused...)
	}
	j.armLocked()
	j.idleLocked()
}

// wait returns when no task is left, or ctx ends. Tasks that a timer will submit do not count.
func (j *jobs) wait(ctx context.Context) {
	j.mu.Lock()
	if j.idle == nil {
		j.idle = make(chan struct{})
	}
	idle := j.idle
	j.idleLocked()
	j.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

func (j *jobs) idleLocked() {
	if j.idle != nil && j.running == 0 && len(j.refused) == 0 {
		close(j.idle)
		j.idle = nil
	}
}

// after submits task when d has passed.
func (j *jobs) after(d time.Duration, task func()) *time.Timer {
	return time.AfterFunc(d, func() { j.submit(task) })
}

// work is one pool worker's turn: the task, and then refused ones as long as there are any.
func (j *jobs) work(task func()) {
	for task != nil {
		j.run(task)
		task = j.next()
	}
}

func (j *jobs) run(task func()) {
	defer func() {
		if r := recover(); r != nil {
			j.log.Error("BUG: a lock job panicked", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
		}
	}()
	task()
}

func (j *jobs) next() func() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.refused) == 0 {
		j.running--
		j.idleLocked()
		return nil
	}
	return j.popLocked()
}

// armLocked asks the pool again shortly: it may be full of others' tasks.
func (j *jobs) armLocked() {
	if len(j.refused) == 0 || j.retry != nil {
		return
	}
	j.retry = time.AfterFunc(refusedPause, func() {
		j.mu.Lock()
		j.retry = nil
		j.mu.Unlock()
		j.again()
	})
}

func (j *jobs) popLocked() func() {
	task := j.refused[0]
	j.refused[0] = nil
	if j.refused = j.refused[1:]; len(j.refused) == 0 {
		j.refused = nil // a burst must not keep its memory
	}
	return task
}
