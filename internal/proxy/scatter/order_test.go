package scatter

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
)

func TestKeysAreInTheOrderOfTheirSlots(t *testing.T) {
	for _, n := range []int{1, 2, manyKeys - 1, manyKeys, 3 * manyKeys} {
		for step := 1; step <= 2; step++ {
			args := [][]byte{[]byte("COMMAND")}
			for i := range n * step {
				args = append(args, fmt.Appendf(nil, "k%d", i%5000))
			}
			keys := bySlot(args, step)
			if len(keys) != n || !slices.IsSortedFunc(keys, func(a, b key) int {
				if a.slot == b.slot {
					return a.at - b.at
				}
				return a.slot - b.slot
			}) {
				t.Errorf("%d keys, step %d: wrong order", n, step)
			}
			for _, k := range keys {
				if k.slot != hashslot.Of(args[1+k.at*step]) {
					t.Fatalf("%d keys, step %d: key %d has another slot", n, step, k.at)
				}
			}
		}
	}
}
