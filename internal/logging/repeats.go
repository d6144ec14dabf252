package logging

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Repeats writes entries that a client or an outage may repeat without end. Of the entries of one kind, the first ones
// of a period are written as they come. The others are counted, and the end of the period writes one summary: the last
// entry with its number of repetitions, which zap's sampler does not have. All methods may be called from any
// goroutine.
type Repeats struct {
	log    *zap.Logger
	most   int
	period time.Duration

	mu    sync.Mutex // guards kinds and their counts; never held while an entry is written
	kinds map[kind]*run
}

// kind names entries that are counted together. Its values are from a closed set.
type kind struct {
	level         zapcore.Level
	message, what string
}

// run is the present period of one kind.
type run struct {
	written, held int
	last          []zap.Field // of the last entry held back
	timer         *time.Timer
}

// NewRepeats returns Repeats that writes at most that number of entries of one kind in a period, besides the summary.
func NewRepeats(log *zap.Logger, most int, period time.Duration) *Repeats {
	return &Repeats{log: log, most: most, period: period, kinds: map[kind]*run{}}
}

// Write writes an entry, or counts it for the summary. Entries of one kind share level, message and what, which are
// from a closed set.
func (r *Repeats) Write(level zapcore.Level, message, what string, fields ...zap.Field) {
	k := kind{level, message, what}
	r.mu.Lock()
	now := r.kinds[k]
	if now == nil {
		now = &run{}
		r.kinds[k] = now
		now.timer = time.AfterFunc(r.period, func() { r.end(k) })
	}
	if now.written == r.most {
		now.held++
		now.last = fields
		r.mu.Unlock()
		return
	}
	now.written++
	r.mu.Unlock()
	r.log.Log(level, message, fields...)
}

// end ends a period. Another follows at once if entries were held back.
func (r *Repeats) end(k kind) {
	r.mu.Lock()
	now := r.kinds[k]
	if now == nil {
		r.mu.Unlock()
		return
	}
	held, last := now.held, now.last
	if held == 0 {
		delete(r.kinds, k)
		r.mu.Unlock()
		return
	}
	now.written, now.held, now.last = r.most, 0, nil // a flood that goes on has one line for each period
	now.timer.Reset(r.period)
	r.mu.Unlock()
	r.summarise(k, held, last)
}

func (r *Repeats) summarise(k kind, held int, last []zap.Field) {
	fields := append(slices.Clip(last), zap.Int("repeated", held), Seconds("within", r.period))
	r.log.Log(k.level, k.message, fields...)
}

// Flush writes all summaries that are due at the end of their periods, and stops the timers.
func (r *Repeats) Flush() {
	r.mu.Lock()
	kinds := r.kinds
	r.kinds = map[kind]*run{}
	r.mu.Unlock()
	for k, now := range kinds {
		now.timer.Stop()
		if now.held > 0 {
			r.summarise(k, now.held, now.last)
		}
	}
}
