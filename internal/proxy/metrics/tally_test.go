package metrics

import (
	"testing"
	"time"
)

func TestTallyForgetsZero(t *testing.T) {
	var c Tally
	c.Add("multi", 2)
	c.Add("blpop", 1)
	c.Add("multi", -1)
	if got := c.Snapshot(); Joined(got) != "blpop=1,multi=1" || Total(got) != 2 {
		t.Errorf("%v, %d in all", got, Total(got))
	}
	c.Add("blpop", -1)
	if got := Joined(c.Snapshot()); got != "multi=1" {
		t.Error(got)
	}
}

func TestTheLeastIsForgottenAfterAWhile(t *testing.T) {
	var l Least
	at := time.Now()
	if got := l.Value(at); got != -time.Second {
		t.Errorf("of none: %s", got)
	}
	l.Add(at, 5*time.Second)
	l.Add(at, 3*time.Second)
	l.Add(at, 4*time.Second)
	for after, want := range map[time.Duration]time.Duration{time.Second: 3 * time.Second, 90 * time.Second: 3 * time.Second, 150 * time.Second: -time.Second} {
		m := Least{begun: l.begun, now: l.now, before: l.before}
		if got := m.Value(at.Add(after)); got != want {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
}
