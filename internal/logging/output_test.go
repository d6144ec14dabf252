package logging

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a reader of the log that may stand still, or fail.
type pipe struct {
	got    bytes.Buffer
	turns  chan struct{} // nil: it reads at once
	broken error
	part   int // of an entry that fails, the bytes that were written
}

func (p *pipe) Write(text []byte) (int, error) {
	if p.turns != nil {
		<-p.turns
	}
	if p.broken != nil {
		n := min(p.part, len(text))
		p.got.Write(text[:n])
		return n, p.broken
	}
	return p.got.Write(text)
}

func counted(d Dropped) []byte {
	return fmt.Appendf(nil, "%d and %d dropped\n", d[Ordinary], d[Audits])
}

func put(o *Output, kind int, text string) { _, _ = o.Of(kind).Write([]byte(text + "\n")) }

func TestEntriesKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &pipe{}
		o := NewOutput(to, counted)
		var want strings.Builder
		for n := range 1000 {
			put(o, n%2, fmt.Sprint(n))
			fmt.Fprintln(&want, n)
		}
		o.Close(time.Second)
		if to.got.String() != want.String() {
			t.Errorf("%q", to.got.String())
		}
	})
}

// No entry is waited for while the reader stands still. When it reads again, a line says how many are missing.
func TestAReaderThatStandsStillIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &pipe{turns: make(chan struct{})}
		o := NewOutput(to, counted)
		put(o, Ordinary, "first")
		synctest.Wait() // it is on its way
		for range mostWaiting + 3 {
			put(o, Ordinary, "entry")
		}
		put(o, Audits, "entry")
		begun := time.Now()
		o.Close(time.Second)
		if waited := time.Since(begun); waited != time.Second {
			t.Errorf("the end waits for %s", waited)
		}
		put(o, Audits, "late")
		if got := o.Counts(); got["ordinary"] != 3 || got["audit"] != 2 {
			t.Errorf("dropped are %v", got)
		}
		close(to.turns)
		o.Close(time.Second)
		if want := "first\n3 and 2 dropped\n" + strings.Repeat("entry\n", mostWaiting); to.got.String() != want {
			t.Errorf("the end is %q", to.got.String()[max(0, to.got.Len()-60):])
		}
	})
}

// A disk that is full, or a reader that is gone.
func TestEntriesThatCannotBeWrittenAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &pipe{}
		o := NewOutput(to, counted)
		put(o, Ordinary, "before")
		synctest.Wait()
		to.broken, to.part = errors.New("no space"), 3
		put(o, Ordinary, "missing")
		synctest.Wait()
		to.part = 0
		put(o, Audits, "missing")
		synctest.Wait()
		to.broken = nil
		put(o, Ordinary, "after")
		synctest.Wait()
		to.broken = errors.New("no space")
		put(o, Ordinary, "the last one")
		synctest.Wait()
		to.broken = nil
		o.Close(time.Second)
		if want := "before\nmis\n1 and 1 dropped\nafter\n1 and 0 dropped\n"; to.got.String() != want {
			t.Errorf("%q, want %q", to.got.String(), want)
		}
		if got := o.Counts(); got["ordinary"] != 2 || got["audit"] != 1 {
			t.Errorf("dropped are %v", got)
		}
	})
}
