package status

import (
	"testing"
	"time"
)

func TestTallyForgetsZero(t *testing.T) {
	var c tally
	c.Add("multi", 2)
	c.Add("blpop", 1)
	c.Add("multi", -1)
	if got := c.snapshot(); joined(got) != "blpop=1,multi=1" || total(got) != 2 {
		t.Errorf("%v, %d in all", got, total(got))
	}
	c.Add("blpop", -1)
	if got := joined(c.snapshot()); got != "multi=1" {
		t.Error(got)
	}
}

func TestTheLeastIsForgottenAfterAWhile(t *testing.T) {
	var l least
	at := time.Now()
	if got := l.value(at); got != -1 {
		t.Errorf("of none: %s", got)
	}
	l.add(at, 5*time.Second)
	l.add(at, 3*time.Second)
	l.add(at, 4*time.Second)
	for after, want := range map[time.Duration]time.Duration{time.Second: 3 * time.Second, 90 * time.Second: 3 * time.Second, 150 * time.Second: -1} {
		m := least{begun: l.begun, now: l.now, before: l.before}
		if got := m.value(at.Add(after)); got != want {
			t.Errorf("after %s: %s, want %s", after, got, want)
		}
	}
}
