package lockcmds

import (
	"context"
	"errors"
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
		more bool
	}{{ErrUnsent, true}, {redisError("NOPERM no"), false}, {nil, false}} {
		e := &Engine{log: zap.NewNop(), jobs: &jobs{log: zap.NewNop(), submitTo: func(f func()) error { go f(); return nil }}}
		var cancel context.CancelFunc
		e.life, cancel = context.WithCancel(t.Context())
		again := 150 * time.Millisecond // several pauses
		if c.more {
			again = patience
		}
		calls := make(chan struct{}, 100)
		e.persist("test", "k", patience, nil, func(context.Context) error {
			calls <- struct{}{}
			return c.err
		})
		<-calls
		select {
		case <-calls:
			if !c.more {
				t.Errorf("%v: tried again", c.err)
			}
		case <-time.After(again):
			if c.more {
				t.Errorf("%v: not tried again", c.err)
			}
		}
		if errors.Is(e.life.Err(), context.Canceled) {
			t.Fatal("ended")
		}
		cancel()
	}
}
