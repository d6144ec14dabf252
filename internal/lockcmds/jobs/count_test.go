package jobs

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestWaitWaitsForTheLastWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Count
		c.Wait(t.Context()) // none
		c.Begin()
		c.Begin()
		ended := false
		go func() {
			c.Wait(t.Context())
			ended = true
		}()
		c.End()
		synctest.Wait()
		if ended {
			t.Error("did not wait for the last")
		}
		c.End()
		synctest.Wait()
		if !ended {
			t.Error("waits for nothing")
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	var c Count
	c.Begin()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Wait(ctx)
}
