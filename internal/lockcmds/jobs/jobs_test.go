package jobs

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
)

const patience = 10 * time.Second

func TestMain(m *testing.M) {
	ants.Release() // importing ants starts a pool of its own
	goleak.VerifyTestMain(m)
}

func newPool(t *testing.T, workers int) *Pool {
	t.Helper()
	p, err := New(workers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(patience); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newQueue(t *testing.T, p *Pool) *Queue {
	return p.NewQueue(func(r any) { t.Errorf("panic: %v", r) })
}

// drained waits until the queue has no work.
func drained(t *testing.T, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q.Wait(ctx)
	if ctx.Err() != nil {
		t.Fatal("the queue still has work")
	}
}

func TestTasksOfOneClassBeginInOrder(t *testing.T) {
	p := newPool(t, 1)
	q := newQueue(t, p)
	gate := make(chan struct{})
	q.Submit(Attempt, func() { <-gate })
	var order []int
	for i := range 1000 {
		q.Submit(Attempt, func() { order = append(order, i) }) // one worker
	}
	close(gate)
	drained(t, q)
	if len(order) != 1000 || !slices.IsSorted(order) {
		t.Fatalf("order %v", order)
	}
}

func TestListsAreMadeOneAtATime(t *testing.T) {
	p := newPool(t, 1024)
	var running, most atomic.Int32
	var queues []*Queue
	for range 4 {
		q := newQueue(t, p)
		queues = append(queues, q)
		for range 50 {
			q.Submit(List, func() {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				runtime.Gosched()
				running.Add(-1)
			})
		}
	}
	for _, q := range queues {
		drained(t, q)
	}
	if n := most.Load(); n != 1 {
		t.Errorf("%d at once", n)
	}
}

func TestABacklogTakesNoWorkerFromAnotherClass(t *testing.T) {
	p := newPool(t, 64)
	q := newQueue(t, p)
	gate := make(chan struct{})
	defer close(gate)
	for range 8000 {
		q.Submit(CleanUp, func() { <-gate })
	}
	for _, c := range []Class{Renewal, Loss, HandOver, Attempt, List} {
		ran := make(chan struct{})
		q.Submit(c, func() { close(ran) })
		select {
		case <-ran:
		case <-time.After(patience):
			t.Fatalf("class %d waits behind clean-up", c)
		}
	}
}

func TestABacklogOfOneQueueDoesNotHoldUpAnother(t *testing.T) {
	p := newPool(t, 64)
	loud, calm := newQueue(t, p), newQueue(t, p)
	gate := make(chan struct{})
	defer close(gate)
	for range 8000 {
		loud.Submit(CleanUp, func() { <-gate })
	}
	ran := make(chan struct{})
	calm.Submit(CleanUp, func() { close(ran) })
	select {
	case <-ran:
	case <-time.After(patience):
		t.Fatal("it waits behind the other's backlog")
	}
}

func TestQueuesTakeTurns(t *testing.T) {
	p := newPool(t, 1) // one worker, so that the order can be seen
	hold, a, b := newQueue(t, p), newQueue(t, p), newQueue(t, p)
	gate := make(chan struct{})
	hold.Submit(CleanUp, func() { <-gate })
	var order string
	for range 3 {
		a.Submit(CleanUp, func() { order += "a" })
	}
	for range 3 {
		b.Submit(CleanUp, func() { order += "b" })
	}
	close(gate)
	drained(t, a)
	drained(t, b)
	if order != "ababab" {
		t.Fatalf("order %s", order)
	}
}

// A refused task used to be put in front of a copy of the whole backlog.
func TestSubmittingCostsTheSameWhateverTheBacklog(t *testing.T) {
	p := newPool(t, 1)
	q := newQueue(t, p)
	gate := make(chan struct{})
	q.Submit(CleanUp, func() { <-gate })
	began := time.Now()
	const many = 200_000
	var ran int
	for range many {
		q.Submit(CleanUp, func() { ran++ })
	}
	if d := time.Since(began); d > 5*time.Second { // 30 ms; 200,000 copies of the list would take minutes
		t.Errorf("%d tasks took %v to submit", many, d)
	}
	close(gate)
	drained(t, q)
	if ran != many {
		t.Fatalf("%d ran", ran)
	}
}

func TestNoMoreTasksRunAtOnceThanAClassHasWorkers(t *testing.T) {
	p := newPool(t, 8)
	var mu sync.Mutex
	running, most := 0, 0
	queues := []*Queue{newQueue(t, p), newQueue(t, p), newQueue(t, p)}
	for range 200 {
		for _, q := range queues {
			q.Submit(Attempt, func() {
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				running--
				mu.Unlock()
			})
		}
	}
	for _, q := range queues {
		drained(t, q)
	}
	if most > 8 || most < 1 {
		t.Fatalf("%d ran at once", most)
	}
}

func TestAPanicIsReportedAndTheWorkerGoesOn(t *testing.T) {
	p := newPool(t, 1)
	var got any
	q := p.NewQueue(func(r any) { got = r })
	ran := false
	q.Submit(Loss, func() { panic("mistake") })
	q.Submit(Loss, func() { ran = true })
	drained(t, q)
	if got != "mistake" || !ran {
		t.Fatalf("reported %v, next task ran: %v", got, ran)
	}
}

func TestAClosedPoolDropsTasks(t *testing.T) {
	p, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	q := newQueue(t, p)
	if err := p.Close(patience); err != nil {
		t.Fatal(err)
	}
	q.Submit(Attempt, func() { t.Error("ran") })
	drained(t, q)
}

func TestAFifoReusesItsRoom(t *testing.T) {
	var f fifo[int]
	next, want := 0, 0
	for range 50 { // never empty, and never more than 100 long
		f.push(next)
		next++
	}
	for range 100_000 {
		f.push(next)
		next++
		if got := f.pop(); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
		want++
	}
	if cap(f.items) > 1000 {
		t.Errorf("%d places for 50 items", cap(f.items))
	}
	for f.len() > 0 {
		f.pop()
	}
	if cap(f.items) > kept {
		t.Errorf("an empty fifo keeps %d places", cap(f.items))
	}
}
