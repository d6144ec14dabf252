package dial

import (
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// lane settles at a time.
type lane struct {
	settles time.Time
	aborted time.Time
}

func (l *lane) Leave() bool { return !time.Now().Before(l.settles) }
func (l *lane) Abort()      { l.aborted = time.Now() }

func TestConnectionsEndWhenTheySettleAndAfterALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		after := func(d time.Duration) *lane { return &lane{settles: begin.Add(d)} }
		lanes := []*lane{after(0), after(10 * time.Millisecond), after(time.Hour)}
		All([]Leaver{lanes[0], lanes[1], lanes[2]}, nil)
		var got []time.Duration
		for _, l := range lanes {
			got = append(got, l.aborted.Sub(begin))
		}
		if want := []time.Duration{0, 10 * time.Millisecond, settleLimit}; !slices.Equal(got, want) {
			t.Errorf("aborted after %v, want %v", got, want)
		}
		stop := make(chan struct{})
		close(stop)
		l := after(time.Hour)
		if All([]Leaver{l}, stop); !l.aborted.IsZero() || time.Since(begin) > settleLimit {
			t.Error("the end does not wait for a connection that does not settle")
		}
	})
}

func TestOnlyTheConnectionToTheOldAddressLeaves(t *testing.T) {
	var c Connection
	c.End() // there is none
	old, far := net.Pipe()
	defer old.Close()
	defer far.Close()
	isElsewhere := func(nc net.Conn) bool { return nc == old }
	left := 0
	leave := func() bool { left++; return false }
	if _, ok := c.Leaver(isElsewhere, leave); ok || left > 0 {
		t.Error("a lane without a connection leaves")
	}
	over := c.Begin(old)
	l, ok := c.Leaver(isElsewhere, leave)
	if !ok || left != 1 || l.Leave() {
		t.Fatal("the old connection does not leave")
	}
	l.Abort()
	l.Abort()
	<-over
	over = c.Begin(far)
	if _, ok := c.Leaver(isElsewhere, leave); ok {
		t.Error("the new connection leaves")
	}
	if !l.Leave() || left != 2 {
		t.Error("the old connection has not settled when it has ended")
	}
	l.Abort()
	select {
	case <-over:
		t.Error("the new connection is ended in place of the old one")
	default:
	}
	c.End()
	<-over
}
