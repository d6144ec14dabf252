package status

import "testing"

func TestTallyForgetsWhatIsZero(t *testing.T) {
	var c tally
	c.Add("multi", 2)
	c.Add("blpop", 1)
	c.Add("multi", -1)
	if got := c.String(); got != "blpop=1,multi=1" || c.sum() != 2 {
		t.Errorf("%s, %d in all", got, c.sum())
	}
	c.Add("blpop", -1)
	if got := c.String(); got != "multi=1" {
		t.Error(got)
	}
}
