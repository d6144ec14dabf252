package lockcmds

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/zap"
)

func TestRefusedTasksRunInOrderOnceThereIsRoom(t *testing.T) {
	var room bool
	var mu sync.Mutex
	var order []int
	j := &jobs{log: zap.NewNop(), submitTo: func(f func()) error {
		mu.Lock()
		defer mu.Unlock()
		if !room {
			return ants.ErrPoolOverload
		}
		go f()
		return nil
	}}
	var all sync.WaitGroup
	for i := range 10 {
		all.Add(1)
		j.submit(func() {
			defer all.Done()
			mu.Lock()
			defer mu.Unlock()
			order = append(order, i)
		})
	}
	mu.Lock()
	if len(order) != 0 {
		t.Error("a task ran without room")
	}
	room = true
	mu.Unlock()
	all.Wait() // nothing but the timer asks again
	for i, n := range order {
		if i != n {
			t.Fatalf("order %v", order)
		}
	}
}

func TestPanicOfATaskEndsOnlyThatTask(t *testing.T) {
	j := &jobs{log: zap.NewNop(), submitTo: func(f func()) error { go f(); return nil }}
	ran := make(chan struct{})
	j.submit(func() { panic("mistake") })
	j.submit(func() { close(ran) })
	<-ran
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	j.wait(ctx)
	if ctx.Err() != nil {
		t.Fatal("a task that panicked still counts as running")
	}
}

func TestClosedPoolDropsTasks(t *testing.T) {
	j := &jobs{log: zap.NewNop(), submitTo: func(func()) error { return ants.ErrPoolClosed }}
	j.submit(func() { t.Error("ran") })
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.refused) != 0 || j.retry != nil || j.running != 0 {
		t.Fatal("the task is kept for a pool that is closed")
	}
}

func TestPersistGivesUpAtItsLimitOrARefusal(t *testing.T) {
	for _, c := range []struct {
		err  error
		once bool
		more bool
	}{
		{ErrUnsent, false, true},
		{ErrInDoubt, false, true},
		{redisError("NOPERM no"), false, false},
		{redisError("LOADING Redis is loading the dataset in memory"), true, true},
		{nil, false, false},
		{ErrUnsent, true, true},
		{ErrInDoubt, true, false},
	} {
		e := &Engine{log: zap.NewNop(), jobs: &jobs{log: zap.NewNop(), submitTo: func(f func()) error { go f(); return nil }}}
		var cancel context.CancelFunc
		e.life, cancel = context.WithCancel(t.Context())
		calls, ended := make(chan struct{}, 100), make(chan bool, 1)
		e.persist(cleanup{
			what: "test", key: "k", limit: patience, once: c.once,
			task: func(context.Context) error {
				calls <- struct{}{}
				return c.err
			},
			done: func(ok bool) { ended <- ok },
		})
		<-calls
		select {
		case <-calls:
			if !c.more {
				t.Errorf("%v, once %v: tried again", c.err, c.once)
			}
		case ok := <-ended:
			if c.more || ok != (c.err == nil) {
				t.Errorf("%v, once %v: ended with %v", c.err, c.once, ok)
			}
		case <-time.After(patience):
			t.Errorf("%v, once %v: neither tried again nor ended", c.err, c.once)
		}
		cancel()
	}
}
