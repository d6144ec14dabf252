package metrics

import "sync/atomic"

// The classes of commands in metrics.
const (
	ClassShared = iota // on a lane, which clients share
	ClassPinned        // on a pin
	ClassLocal         // answered by the proxy
	ClassLock          // the lock commands
	Classes            // how many there are
)

// ClassNames are the names of the classes.
var ClassNames = [Classes]string{"shared", "pinned", "local", "lock"}

// shards spreads the counters, so that event loops do not share a cache line. It is a power of two.
const shards = 8

// Traffic counts commands and their bytes. Each batch of ordinary commands changes it, so counting neither allocates
// nor waits. The zero value is ready.
type Traffic struct {
	shard [shards]struct {
		commands, bytes [Classes]atomic.Int64
		tick            atomic.Int64 // of the last command that was measured for its tick
		_               [64]byte
	}
}

// Add counts n commands of a session, by its number, with that number of bytes together.
func (t *Traffic) Add(session uint64, class, n, bytes int) {
	s := &t.shard[session%shards]
	s.commands[class].Add(int64(n))
	s.bytes[class].Add(int64(bytes))
}

// measured is how many commands there are for each one that is measured. To measure one reads the clock four times.
const measured = 64

// Due reports whether one of the next n commands of a session is to be measured: one of 64 of its class, and one in
// each tick of the proxy's clock.
func (t *Traffic) Due(session uint64, class, n int, tick int64) bool {
	s := &t.shard[session%shards]
	if s.tick.Load() != tick {
		s.tick.Store(tick)
		return true
	}
	before := s.commands[class].Load()
	return before/measured != (before+int64(n))/measured
}

// Snapshot is the numbers of commands and of their bytes, by class.
func (t *Traffic) Snapshot() (commands, bytes map[string]int64) {
	commands, bytes = map[string]int64{}, map[string]int64{}
	for i := range t.shard {
		for class, name := range ClassNames {
			commands[name] += t.shard[i].commands[class].Load()
			bytes[name] += t.shard[i].bytes[class].Load()
		}
	}
	return commands, bytes
}
