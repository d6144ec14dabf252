package engine

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestGroupMayBeJoinedWhileItIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Group
		var done atomic.Int64
		first, second := make(chan struct{}), make(chan struct{})
		c.Start(func() { <-first; done.Add(1) })
		over := make(chan struct{})
		go func() { c.Wait(); close(over) }()
		synctest.Wait()
		if !c.Start(func() { <-second; done.Add(1) }) {
			t.Error("refused though one is at work")
		}
		close(first)
		synctest.Wait()
		select {
		case <-over:
			t.Error("over though one is at work")
		default:
		}
		close(second)
		<-over
		if done.Load() != 2 || c.Start(func() { t.Error("ran") }) {
			t.Errorf("%d done, or joined after the end", done.Load())
		}
	})
}

func TestGroupOfNobodyIsOver(t *testing.T) {
	var c Group
	c.Wait()
	if c.Start(func() { t.Error("ran") }) {
		t.Error("joined after the end")
	}
}
