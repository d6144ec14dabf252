package script

import (
	"math"
	"strconv"
	"sync"

	"github.com/lockproxy/lockproxy/internal/upstream/slots"
)

// Servers are what the scripts must know of the servers that run them. The zero value is one server.
type Servers struct {
	Slots   bool // a cluster: all keys of a call are of one hash slot, and so is its fence counter
	Sharded bool // waiters listen by SSUBSCRIBE, so they are woken by SPUBLISH
}

// On is the call for these servers. It changes the slices of the call, which may be called upon again.
func (c Call) On(s Servers) Call {
	if !s.Slots || c.Script == nil || len(c.Keys) == 0 {
		return c
	}
	if i := c.fence; i > 0 {
		c.Keys[i] = FenceKeyOf(c.Keys[0], s)
	}
	if i := c.publish; s.Sharded && i >= 0 && i < len(c.Args) {
		c.Args[i] = spublish
	}
	return c
}

// FenceKeyOf is the key that counts the fences of a lock: one for all locks, or one for the locks of each hash slot.
func FenceKeyOf(lock string, s Servers) string {
	if !s.Slots {
		return FenceKey
	}
	return fenceKeys()[slots.Of([]byte(lock))]
}

// fenceKeys are the fence counters of a cluster, by slot. The tag of each is the first number of that slot, in base 36. All proxies and
// all their versions must agree on them.
var fenceKeys = sync.OnceValue(func() *[slots.Count]string {
	var keys [slots.Count]string
	for n, missing := int64(0), slots.Count; missing > 0 && n < math.MaxInt32; n++ {
		tag := strconv.FormatInt(n, 36)
		if slot := slots.Of([]byte(tag)); keys[slot] == "" {
			keys[slot] = FenceKey + ":{" + tag + "}"
			missing--
		}
	}
	return &keys
})
