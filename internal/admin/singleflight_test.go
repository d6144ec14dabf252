package admin

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnswersComeInTimeWhileAQuestionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, hang, asked := newSingleFlight(), make(chan struct{}), 0
		question := func() int {
			asked++ // one at a time
			if asked == 1 {
				<-hang
			}
			return asked
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				begin := time.Now()
				if v, ok := Ask(f, time.Second, question); ok || time.Since(begin) > time.Second {
					t.Errorf("while it hangs: %d, %v, after %s", v, ok, time.Since(begin))
				}
			})
		}
		all.Wait()
		close(hang)
		if v, ok := Ask(f, time.Second, question); v != 2 || !ok {
			t.Errorf("afterwards: %d, %v", v, ok)
		}
	})
}
