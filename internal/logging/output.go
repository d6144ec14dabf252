package logging

import (
	"bytes"
	"io"
	"sync"
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
	torn    bool          // the last line has no end; of the goroutine that writes

	mu      sync.Mutex // guards the fields below; never held while an entry is written
	dropped Dropped    // since the start
	untold  Dropped    // of these, those that are in no line yet
	closed  bool
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
	text []byte
	kind int
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
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make(map[string]int64, len(kinds))
	for kind, name := range kinds {
		all[name] = int64(o.dropped[kind])
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
		case o.entries <- entry{bytes.Clone(text), kind}:
			return
		default:
		}
	}
	o.dropLocked(kind)
}

func (o *Output) dropLocked(kind int) {
	o.dropped[kind]++
	o.untold[kind]++
}

// run writes entries until the Output is closed.
func (o *Output) run() {
	defer close(o.ended)
	for e := range o.entries {
		if !o.tell() || !o.write(e.text) {
			o.mu.Lock()
			o.dropLocked(e.kind)
			o.mu.Unlock()
		}
	}
	o.tell()
}

// tell writes the line about the entries that were dropped, if there are any. It reports whether what follows can be
// written.
func (o *Output) tell() bool {
	o.mu.Lock()
	told := o.untold
	o.mu.Unlock()
	if told == (Dropped{}) {
		return true
	}
	if !o.write(o.line(told)) {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for kind, n := range told {
		o.untold[kind] -= n
	}
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
