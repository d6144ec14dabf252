package lockcmds

import (
	"fmt"
	"testing"
)

// BenchmarkQueue is one waiter that comes and one that goes, beside others: the first, as in a hand-over, or one in the
// middle, as when a client hangs up.
func BenchmarkQueue(b *testing.B) {
	for _, waiting := range []int{1, 10_000} {
		for _, from := range []string{"first", "middle"} {
			b.Run(fmt.Sprintf("waiting=%d/leaves=%s", waiting, from), func(b *testing.B) {
				var q queue
				all := make([]*waiter, waiting)
				for i := range all {
					all[i] = &waiter{}
					q.push(all[i])
				}
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					w := q.first
					if from == "middle" {
						w = all[(n*7919)%waiting]
					}
					q.remove(w)
					q.push(w)
				}
			})
		}
	}
}
