package jobs

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
)

const patience = 10 * time.Second

func TestMain(m *testing.M) {
	ants.Release() // importing ants starts a pool of its own
	goleak.VerifyTestMain(m)
}

func newPool(t *testing.T) *Pool {
	t.Helper()
	p, err := New()
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
	p := newPool(t)
	q := newQueue(t, p)
	gate := make(chan struct{})
	q.Submit(List, func() { <-gate })
	var order []int
	for i := range 1000 {
		q.Submit(List, func() { order = append(order, i) }) // one worker
	}
	close(gate)
	drained(t, q)
	if len(order) != 1000 || !slices.IsSorted(order) {
		t.Fatalf("order %v", order)
	}
}

// However many lists the clients of one engine ask for, those of another wait for one of them.
func TestEnginesTakeTurnsWithTheirLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		loud, calm := newQueue(t, p), newQueue(t, p)
		gate := make(chan struct{})
		var order []string
		for range 3 {
			loud.Submit(List, func() { <-gate; order = append(order, "loud") })
		}
		synctest.Wait()
		calm.Submit(List, func() { order = append(order, "calm") })
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if want := []string{"loud", "calm", "loud", "loud"}; !slices.Equal(order, want) {
			t.Errorf("%v, not %v", order, want)
		}
	})
}

// Whatever clients leave behind, wait for, or list: renewals, and the work of other engines, go on.
func TestABacklogHoldsUpNoOtherClassAndNoOtherQueue(t *testing.T) {
	p := newPool(t)
	loud, calm := newQueue(t, p), newQueue(t, p)
	gate := make(chan struct{})
	defer close(gate)
	runs := func(q *Queue, c Class, behind string) {
		t.Helper()
		ran := make(chan struct{})
		q.Submit(c, func() { close(ran) })
		select {
		case <-ran:
		case <-time.After(patience):
			t.Fatalf("class %d waits behind %s", c, behind)
		}
	}
	for range 8000 {
		loud.Submit(List, func() { <-gate })
	}
	runs(loud, CleanUp, "lists")
	runs(loud, Urgent, "lists")
	for range 8000 {
		loud.Submit(CleanUp, func() { <-gate })
	}
	runs(loud, Urgent, "clean-up")
	runs(calm, CleanUp, "the clean-up of another engine")
	for range 8000 {
		loud.Submit(Urgent, func() { <-gate })
	}
	runs(loud, Renewal, "attempts")
	runs(calm, Urgent, "the attempts of another engine")
}

func TestSubmittingCostsTheSameWhateverTheBacklog(t *testing.T) {
	q := newQueue(t, newPool(t))
	gate := make(chan struct{})
	q.Submit(List, func() { <-gate })
	began := time.Now()
	const many = 200_000
	var ran int
	for range many {
		q.Submit(List, func() { ran++ })
	}
	if d := time.Since(began); d > 5*time.Second { // 30 ms; 200,000 copies of the list would take minutes
		t.Errorf("%d tasks took %v to submit", many, d)
	}
	close(gate)
	drained(t, q)
	if ran != many {
		t.Fatalf("%d ran", ran)
	}
	for l := &q.lines[List]; ; runtime.Gosched() {
		l.mu.Lock()
		idle, kept := l.workers == 0, cap(l.tasks)
		l.mu.Unlock()
		if idle {
			if kept > 0 {
				t.Errorf("an empty line keeps %d places", kept)
			}
			return
		}
	}
}

// Each queue has workers of its own, but lists of all queues are made one at a time.
func TestNoMoreTasksRunAtOnceThanAClassHasWorkers(t *testing.T) {
	for _, class := range []Class{CleanUp, List} {
		p := newPool(t)
		queues := []*Queue{newQueue(t, p)}
		if class == List {
			queues = append(queues, newQueue(t, p), newQueue(t, p))
		}
		var running, most atomic.Int32
		for i := range 2000 {
			queues[i%len(queues)].Submit(class, func() {
				for n := running.Add(1); ; {
					if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				runtime.Gosched()
				running.Add(-1)
			})
		}
		for _, q := range queues {
			drained(t, q)
		}
		if n := int(most.Load()); n > workers[class] {
			t.Errorf("%d of class %d ran at once", n, class)
		}
	}
}

func TestAPanicIsReportedAndTheWorkerGoesOn(t *testing.T) {
	p := newPool(t)
	var got any
	q := p.NewQueue(func(r any) { got = r })
	ran := false
	q.Submit(List, func() { panic("mistake") })
	q.Submit(List, func() { ran = true })
	drained(t, q)
	if got != "mistake" || !ran {
		t.Fatalf("reported %v, next task ran: %v", got, ran)
	}
}

func TestAClosedPoolDropsTasks(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	q := newQueue(t, p)
	if err := p.Close(patience); err != nil {
		t.Fatal(err)
	}
	q.Submit(Urgent, func() { t.Error("ran") })
	drained(t, q)
}
