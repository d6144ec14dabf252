package lockcmds

import (
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
)

// jobs hands short tasks to the pool and keeps those that the pool refuses until one of ours ends. A task may do one
// round trip to Redis; it never waits for a lock.
type jobs struct {
	submitTo func(func()) error // immutable; non-blocking
	log      *zap.Logger        // immutable

	mu      sync.Mutex
	refused []func()    // FIFO
	running int         // tasks in the pool
	retry   *time.Timer // armed while tasks are refused and none of ours is in the pool
}

// refusedPause is how long to wait before a pool that is full of others' tasks is asked again.
const refusedPause = 2 * time.Millisecond

// submit runs task on the pool, now or as soon as there is room. It never blocks.
func (j *jobs) submit(task func()) {
	j.mu.Lock()
	if len(j.refused) > 0 {
		j.refused = append(j.refused, task)
		j.mu.Unlock()
		return
	}
	j.running++
	j.mu.Unlock()
	if j.submitTo(func() { j.work(task) }) == nil {
		return
	}
	j.mu.Lock()
	j.running--
	j.refused = append(j.refused, task)
	j.armLocked()
	j.mu.Unlock()
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
		return nil
	}
	task := j.refused[0]
	j.refused[0] = nil
	j.refused = j.refused[1:]
	return task
}

// armLocked asks the pool again shortly if no worker of ours is left to take over what was refused.
func (j *jobs) armLocked() {
	if j.running > 0 || len(j.refused) == 0 || j.retry != nil {
		return
	}
	j.retry = time.AfterFunc(refusedPause, j.again)
}

func (j *jobs) again() {
	j.mu.Lock()
	j.retry = nil
	if len(j.refused) == 0 || j.running > 0 {
		j.mu.Unlock()
		return
	}
	task := j.refused[0]
	j.refused = j.refused[1:]
	j.running++
	j.mu.Unlock()
	if j.submitTo(func() { j.work(task) }) == nil {
		return
	}
	j.mu.Lock()
	j.running--
	j.refused = append([]func(){task}, j.refused...)
	j.armLocked()
	j.mu.Unlock()
}
