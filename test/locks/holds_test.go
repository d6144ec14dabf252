package locks

import (
	"fmt"
	"math"
	"time"
)

// hold is one grant, as its client knows of it.
type hold struct {
	key     string
	fence   int64
	first   op
	watched bool  // renewed by the watchdog all the time
	until   int64 // it had certainly ended by then
	end     op    // what ended it, if anything did
	over    bool
	revived bool // its owner had later grants before: a release was lost
}

func (h *hold) String() string { return fmt.Sprintf("%s fence %d of %v", h.key, h.fence, h.first) }

// holdsOf reads the holds out of one worker's commands, which followed each other. lossy: a failover may lose a release.
func holdsOf(ops []op, lossy bool) []*hold {
	var all []*hold
	current := make(map[[2]string]*hold)
	newest := make(map[[2]string]int64)
	for _, o := range ops {
		k := [2]string{o.Key, o.hold()}
		h := current[k]
		switch {
		case o.acquire() && o.Out == acquired && (h == nil || h.fence != o.Fence):
			h = &hold{key: o.Key, fence: o.Fence, first: o, watched: !o.Fixed}
			h.revived = lossy && o.Fence < newest[k]
			newest[k] = max(newest[k], o.Fence)
			current[k] = h
			all = append(all, h)
		case h == nil || h.over:
		case o.Verb == "UNLOCK" && (o.Out == released || o.Out == unknown || o.Out == notHeld), o.Verb == "EXTENDLOCK" && o.Out == notHeld:
			h.over, h.end = true, o
		case o.Out == acquired, o.Out == extended:
			h.watched = h.watched && !o.Fixed && o.Lease == h.first.Lease
		case (o.acquire() || o.Verb == "EXTENDLOCK") && (o.Out == unknown || o.ended()):
			h.watched = false
		}
	}
	for _, h := range all {
		h.until = h.latest(ops)
	}
	return all
}

// latest is when the lock had certainly ended for a worker with these commands: by its release, or a lease after it did something else.
func (h *hold) latest(ops []op) int64 {
	if h.over && h.end.Out != unknown {
		return h.end.Return
	}
	lease, last := int64(0), 0
	for i, o := range ops {
		if o.Key == h.key && o.hold() == h.first.hold() && o.N >= h.first.N {
			lease, last = max(lease, o.Lease), i
		}
	}
	if last+1 < len(ops) {
		return ops[last+1].Call + lease
	}
	return math.MaxInt64
}

// rounding is what Redis's whole milliseconds may cost.
const rounding = int64(time.Millisecond)
