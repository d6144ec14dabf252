package status

import "testing"

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
