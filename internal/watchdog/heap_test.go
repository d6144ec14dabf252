package watchdog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

func TestHeapYieldsInOrderWhateverMoves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h heap
	live := map[*Lease]time.Duration{}
	for range 20_000 {
		due := time.Duration(rng.IntN(1000))
		switch rng.IntN(4) {
		case 0, 1:
			l := &Lease{}
			h.push(l, due)
			live[l] = due
		case 2:
			for l := range live {
				h.fix(l, due)
				live[l] = due
				break
			}
		case 3:
			for l := range live {
				h.remove(l)
				delete(live, l)
				break
			}
		}
	}
	last := time.Duration(-1)
	for len(h) > 0 {
		top := h[0]
		if top.due < last || live[top.lease] != top.due || top.lease.index != 0 {
			t.Fatalf("due %v after %v, tracked as %v, index %d", top.due, last, live[top.lease], top.lease.index)
		}
		last = top.due
		h.remove(top.lease)
		delete(live, top.lease)
	}
	if len(live) != 0 {
		t.Errorf("%d leases vanished", len(live))
	}
}

func newIdle(tb testing.TB) *Watchdog {
	tb.Helper()
	verdicts := make([]Verdict, 100)
	for i := range verdicts {
		verdicts[i] = Renewed
	}
	w, err := New(Options{
		Renew: func(_ context.Context, _ Group, batch []Renewal) ([]Verdict, error) {
			return verdicts[:len(batch)], nil
		},
		Submit: func(job func()) { job() },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// shift moves the watchdog's clock on, so that a benchmark need not wait for leases to fall due.
func (w *Watchdog) shift(d time.Duration) { w.base = w.base.Add(-d) }

// steps is as many turns of Run as it takes until nothing is due.
func (w *Watchdog) steps(ctx context.Context) {
	for w.step(ctx) <= w.now() {
	}
}

// BenchmarkRenewal is the cost of one renewal of 100,000 leases, without the round trip: heap, queue, batch, settling.
func BenchmarkRenewal(b *testing.B) {
	const leases = 100_000
	w := newIdle(b)
	for i := range leases { // spread over one period, as locks taken at random are
		track(w, entry("k"), w.base.Add(time.Duration(i)*lease/renewalsPerTTL/leases))
	}
	w.shift(lease / renewalsPerTTL)
	b.ReportAllocs()
	turns := 0
	for b.Loop() {
		if turns++; turns%1000 == 1 { // b.N counts renewals: a turn of 100 ms renews 1,000
			w.shift(100 * time.Millisecond)
			w.steps(b.Context())
		}
	}
}

// BenchmarkTrackForget is what a LOCK and UNLOCK pay beside 100,000 other leases.
func BenchmarkTrackForget(b *testing.B) {
	w := newIdle(b)
	for range 100_000 {
		track(w, entry("k"), w.base)
	}
	b.ReportAllocs()
	for b.Loop() {
		track(w, entry("k"), w.base).Forget()
	}
}

func TestRenewingAllocatesPerJobNotPerLease(t *testing.T) {
	w := newIdle(t)
	for range 10_000 {
		track(w, entry("k"), w.base)
	}
	allocs := testing.AllocsPerRun(5, func() {
		w.shift(lease / renewalsPerTTL)
		w.steps(t.Context())
	})
	if allocs > 10_000/10 {
		t.Errorf("%v allocations for 10,000 renewals in 100 batches", allocs)
	}
}

func TestLeaseIsSmall(t *testing.T) {
	if got := unsafe.Sizeof(Lease{}) + unsafe.Sizeof(node{}); got > 192 {
		t.Errorf("%d bytes per lease", got)
	}
}

func ExampleWatchdog() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w, err := New(Options{
		Renew: func(_ context.Context, _ Group, batch []Renewal) ([]Verdict, error) {
			fmt.Printf("renew %s for %v\n", batch[0].Of, batch[0].TTL)
			return []Verdict{Gone}, nil
		},
		Submit: func(job func()) { go job() },
		OnLost: func(of any, r Reason) {
			fmt.Printf("lost %s: %s\n", of, r)
			cancel()
		},
	})
	if err != nil {
		panic(err)
	}
	acquired := time.Now().Add(-20 * time.Second)
	w.Track(&Lease{}, Entry{Of: "k", TTL: time.Minute}, acquired)
	_ = w.Run(ctx)
	// Output:
	// renew k for 1m0s
	// lost k: gone
}
