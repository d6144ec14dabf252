package admin

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnswersComeInTimeWhileTheQuestionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, running atomic.Int64
		hang := make(chan struct{})
		r := recentValue[int64]{Ask: func() int64 {
			if running.Add(1) > 1 {
				t.Error("two questions at once")
			}
			defer running.Add(-1)
			if n.Add(1) == 2 {
				<-hang
			}
			return n.Load()
		}}
		if v, _, fresh := r.Get(time.Second); v != 1 || !fresh {
			t.Errorf("first: %d, fresh %v", v, fresh)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				begin := time.Now()
				v, at, fresh := r.Get(time.Second)
				if took := time.Since(begin); v != 1 || fresh || took > time.Second || at.IsZero() {
					t.Errorf("while it hangs: %d, fresh %v, after %s", v, fresh, took)
				}
			})
		}
		all.Wait()
		close(hang)
		synctest.Wait()
		if v, _, fresh := r.Get(time.Second); v != 3 || !fresh {
			t.Errorf("afterwards: %d, fresh %v", v, fresh)
		}
	})
}

// An answer that was on its way already may be out of date.
func TestAnswerIsToAQuestionPutAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var truth atomic.Int64
		r := recentValue[int64]{Ask: func() int64 {
			v := truth.Load()
			<-time.After(time.Second)
			return v
		}}
		go r.Get(time.Minute)
		synctest.Wait()
		truth.Store(7)
		if v, _, fresh := r.Get(time.Minute); v != 7 || !fresh {
			t.Errorf("%d, fresh %v", v, fresh)
		}
	})
}
