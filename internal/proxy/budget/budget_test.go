package budget

import (
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// holder is an owner whose memory is a number.
type holder struct {
	mu      sync.Mutex
	account Account
	has     int
	left    int // what remains when it is cut
	cut     int // how often
}

func (h *holder) Measure() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.account.Charge(h.has)
	return h.has
}

func (h *holder) Cut(int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut++
	h.has = h.left
	h.account.Condemn()
	h.account.Charge(h.has)
}

func (h *holder) set(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.has = n
	h.account.Charge(n)
}

func (h *holder) cuts() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cut
}

func newHolder(b *Budget) *holder {
	h := &holder{}
	h.account.Open(b, h)
	return h
}

func spawn(task func()) bool {
	go task()
	return true
}

func TestTheLargestAreCutFirst(t *testing.T) {
	b := New(10<<20, spawn)
	small, middle, large := newHolder(b), newHolder(b), newHolder(b)
	small.set(1 << 20)
	large.set(5 << 20)
	middle.set(3 << 20)
	if b.Used() != 9<<20 {
		t.Fatalf("%d bytes are charged", b.Used())
	}
	small.set(3 << 19) // the one that takes too much is not the one that has most
	middle.set(4 << 20)
	redistest.Eventually(t, 10*time.Second, "the largest to be cut", func() bool { return b.Used() <= b.Limit() && !b.reaping.Load() })
	if small.cuts() != 0 || middle.cuts() != 0 || large.cuts() != 1 {
		t.Errorf("cut: small %d, middle %d, large %d", small.cuts(), middle.cuts(), large.cuts())
	}
}

// A charge may be out of date: the memory that it stands for has left without a word.
func TestWhoHasLessThanIsChargedIsNotCut(t *testing.T) {
	b := New(10<<20, spawn)
	stale, large := newHolder(b), newHolder(b)
	stale.set(8 << 20)
	stale.mu.Lock()
	stale.has = 0
	stale.mu.Unlock()
	large.set(4 << 20)
	redistest.Eventually(t, 10*time.Second, "the charges to be right", func() bool { return b.Used() == 4<<20 })
	if stale.cuts()+large.cuts() != 0 {
		t.Errorf("cut: %d and %d", stale.cuts(), large.cuts())
	}
}

// What a cut owner still has leaves by itself; cutting it again would free nothing.
func TestNobodyIsCutTwice(t *testing.T) {
	b := New(1<<20, spawn)
	stuck, other := newHolder(b), newHolder(b)
	stuck.left = 4 << 20
	stuck.set(4 << 20)
	redistest.Eventually(t, 10*time.Second, "it to be cut", func() bool { return stuck.cuts() == 1 && !b.reaping.Load() })
	other.set(1 << 20)
	redistest.Eventually(t, 10*time.Second, "the other to be cut", func() bool { return other.cuts() == 1 && !b.reaping.Load() })
	if stuck.cuts() != 1 {
		t.Errorf("cut %d times", stuck.cuts())
	}
}

func TestOrdinaryOwnersAreNotCharged(t *testing.T) {
	b := New(1<<20, nil)
	h := newHolder(b)
	h.set(Free)
	if b.Used() != 0 || len(b.accounts) != 0 {
		t.Errorf("%d bytes, %d accounts", b.Used(), len(b.accounts))
	}
	h.set(Free + 1)
	if b.Used() < Free {
		t.Errorf("%d bytes", b.Used())
	}
	h.set(0)
	h.account.Close()
	if b.Used() != 0 || len(b.accounts) != 0 {
		t.Errorf("in the end %d bytes, %d accounts", b.Used(), len(b.accounts))
	}
}

func TestAllowanceShrinks(t *testing.T) {
	b := New(1<<30, nil)
	h := newHolder(b)
	last := b.Allowance(4 << 20)
	if last != 4<<20 {
		t.Errorf("of an unused budget: %d", last)
	}
	for used := 0; used <= 1<<30; used += 32 << 20 {
		h.set(used)
		got := b.Allowance(4 << 20)
		if got > last || got < leastAllowance {
			t.Errorf("with %d used: %d after %d", used, got, last)
		}
		last = got
	}
	if last != leastAllowance {
		t.Errorf("of a used up budget: %d", last)
	}
}

// What is charged is never less than what there is, but for what is free.
func TestChargesCoverWhatThereIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(1<<40, nil)
		holders := []*holder{newHolder(b), newHolder(b), newHolder(b)}
		for range rapid.IntRange(1, 50).Draw(t, "changes") {
			rapid.SampledFrom(holders).Draw(t, "who").set(rapid.IntRange(0, 10<<20).Draw(t, "bytes"))
			has := 0
			for _, h := range holders {
				has += h.has
			}
			if used := int(b.Used()); used < has-len(holders)*Free || used > has+len(holders)*step {
				t.Fatalf("%d charged, %d there", used, has)
			}
		}
	})
}

// The estimate is never below what one client has on a connection that it shares, and catches up when the connection
// does.
func TestBacklogIsNotUnderestimated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Backlog
		var end, written int64
		var mine []int64 // positions of each byte of this client, as far as they are not written
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			n := rapid.IntRange(1, 20).Draw(t, "bytes")
			switch rapid.SampledFrom([]string{"mine", "another's", "written"}).Draw(t, "event") {
			case "mine":
				for range n {
					end++
					mine = append(mine, end)
				}
				b.Add(n, end, written)
			case "another's":
				end += int64(n)
			case "written":
				written = min(end, written+int64(n))
				b.Settle(written)
			}
			for len(mine) > 0 && mine[0] <= written {
				mine = mine[1:]
			}
			if b.Bytes() < len(mine) {
				t.Fatalf("estimated %d, there are %d", b.Bytes(), len(mine))
			}
		}
		b.Settle(end)
		if b.Bytes() != 0 {
			t.Fatalf("%d are left when all is written", b.Bytes())
		}
	})
}

func TestOthersWaitUntilTheLargestAreCut(t *testing.T) {
	var reap func()
	b := New(1<<20, func(task func()) bool { reap = task; return true })
	if b.WhenFits(func() { t.Error("called for nothing") }) {
		t.Error("an owner waits although all fit")
	}
	large := newHolder(b)
	large.set(2 << 20)
	fits := 0
	if !b.WhenFits(func() {
		if fits++; b.Used() > b.Limit() {
			t.Errorf("%d bytes are charged", b.Used())
		}
	}) {
		t.Fatal("no owner waits while the largest is about to be cut")
	}
	reap()
	if fits != 1 {
		t.Errorf("told %d times", fits)
	}
	large.left = 2 << 20
	large.set(3 << 20)
	reap() // nothing is left to be cut
	if fits != 1 || b.WhenFits(func() {}) {
		t.Error("an owner waits although no other one is about to be cut")
	}
}
