package logging

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap/zapcore"
)

// mostWaiting is the number of entries that an Output holds at most.
const mostWaiting = 4096

// Output writes entries to a file, a pipe or a terminal on a goroutine of its own, in the order of their coming. No
// entry is waited for: the reader of a pipe may stand still or go. Entries for which there is no place, and those that
// cannot be written, are counted. The next one that is written has a line in front of it with their number. All
// methods may be called from any goroutine.
type Output struct {
	to      io.Writer
	line    func(Dropped) []byte
	entries chan entry
	ended   chan struct{} // closed when all entries are written
	counts  [len(kinds)]atomic.Int64

	mu      sync.Mutex // orders entries among missing; never held while an entry is written
	missing Dropped    // entries that found no place behind the last one that did
	closed  bool

	// These belong to the goroutine that writes.
	untold Dropped // entries that are dropped and not in a line yet
	torn   bool    // the last line has no end
}

// Dropped is the number of lost entries of each kind.
type Dropped [len(kinds)]int

// The kinds of entries that are counted apart.
const (
	Ordinary = iota
	Audits   // entries of level Audit
)

var kinds = [...]string{Ordinary: "ordinary", Audits: "audit"}

// entry is one entry of the log on its way to the writer.
type entry struct {
	text   []byte
	kind   int
	before Dropped // entries in front of it that found no place
}

// NewOutput returns an Output, which writes to a writer until it is closed. line makes the line about a number of
// entries that were dropped.
func NewOutput(to io.Writer, line func(Dropped) []byte) *Output {
	o := &Output{to: to, line: line, entries: make(chan entry, mostWaiting), ended: make(chan struct{})}
	go o.run()
	return o
}

// Of is the part of the Output for entries of one kind.
func (o *Output) Of(kind int) zapcore.WriteSyncer { return sink{o, kind} }

// Counts are the entries that were dropped since the start, by kind.
func (o *Output) Counts() map[string]int64 {
	all := make(map[string]int64, len(kinds))
	for kind, name := range kinds {
		all[name] = o.counts[kind].Load()
	}
	return all
}

// Close waits until all entries are written, for that time at most. Later entries are dropped.
func (o *Output) Close(limit time.Duration) {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		close(o.entries)
	}
	o.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-o.ended:
	case <-timer.C:
	}
}

// add takes an entry if there is a place for it.
func (o *Output) add(kind int, text []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		select {
		case o.entries <- entry{bytes.Clone(text), kind, o.missing}:
			o.missing = Dropped{}
			return
		default:
		}
	}
	o.missing[kind]++
	o.counts[kind].Add(1)
}

// run writes entries until the Output is closed.
func (o *Output) run() {
	defer close(o.ended)
	for e := range o.entries {
		if !o.tell(e.before) || !o.write(e.text) {
			o.untold[e.kind]++
			o.counts[e.kind].Add(1)
		}
	}
	o.mu.Lock()
	rest := o.missing
	o.mu.Unlock()
	o.tell(rest)
}

// tell writes the line about the entries that were dropped, these among them, if there are any. It reports whether what
// follows can be written.
func (o *Output) tell(before Dropped) bool {
	for kind, n := range before {
		o.untold[kind] += n
	}
	if o.untold == (Dropped{}) {
		return true
	}
	if !o.write(o.line(o.untold)) {
		return false
	}
	o.untold = Dropped{}
	return true
}

// write writes lines, behind the end of one that was torn.
func (o *Output) write(text []byte) bool {
	if o.torn {
		text = append([]byte("\n"), text...)
	}
	n, err := o.to.Write(text)
	if n > 0 {
		o.torn = n < len(text)
	}
	return err == nil
}

// sink is the part of an Output for entries of one kind.
type sink struct {
	*Output

	kind int
}

// Write implements zapcore.WriteSyncer. It does not fail.
func (s sink) Write(text []byte) (int, error) {
	s.add(s.kind, text)
	return len(text), nil
}

// Sync implements zapcore.WriteSyncer. Entries above the level error would have it called for each.
func (s sink) Sync() error { return nil }
