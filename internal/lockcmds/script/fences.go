package script

import (
	"math"
	"strconv"
	"sync"

	"github.com/lockproxy/lockproxy/internal/hashslot"
)

// FenceOf is the key that counts the fences of a lock: one for all locks, or in a cluster, which has hash slots, one
// for the locks of each slot.
func FenceOf(lock string, cluster bool) string {
	if !cluster {
		return Fence
	}
	return fenceKeys()[hashslot.Of([]byte(lock))]
}

// fenceKeys are the fence counters of a cluster, by slot. The tag of each is the first number of that slot, in base 36.
// All proxies and all their versions must agree on them.
var fenceKeys = sync.OnceValue(func() *[hashslot.Count]string {
	var keys [hashslot.Count]string
	for n, missing := int64(0), hashslot.Count; missing > 0 && n < math.MaxInt32; n++ {
		tag := strconv.FormatInt(n, 36)
		if slot := hashslot.Of([]byte(tag)); keys[slot] == "" {
			keys[slot] = Fence + ":{" + tag + "}"
			missing--
		}
	}
	return &keys
})
