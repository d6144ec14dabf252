package sentinel

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/upstream/answers"
)

func TestElect(t *testing.T) {
	type Answer = answers.Answer
	at := func(epoch int64, addr string) Answer { return Answer{Epoch: epoch, Addr: addr} }
	for _, c := range []struct {
		name    string
		present view
		refuted bool
		answers []Answer
		want    view
	}{
		{"nothing is known", view{}, false, nil, view{}},
		{"the first answer", view{}, false, []Answer{at(0, "a")}, view{0, "a"}},
		{"the greatest epoch wins over the majority", view{}, false, []Answer{at(1, "a"), at(1, "a"), at(2, "b")}, view{2, "b"}},
		{"no Sentinel answers", view{2, "b"}, false, nil, view{2, "b"}},
		{"a failover", view{1, "a"}, false, []Answer{at(1, "a"), at(2, "b"), at(1, "a")}, view{2, "b"}},
		{"all that answer know an older configuration", view{2, "b"}, false, []Answer{at(1, "a"), at(1, "a"), at(1, "a")}, view{2, "b"}},
		{"and the process is no primary", view{2, "b"}, true, []Answer{at(1, "a"), at(1, "a")}, view{1, "a"}},
		{"but they are no majority", view{2, "b"}, true, []Answer{at(1, "a")}, view{2, "b"}},
		{"one epoch, the present address is named", view{1, "a"}, false, []Answer{at(1, "b"), at(1, "b"), at(1, "a")}, view{1, "a"}},
		{"one epoch, a majority names another", view{1, "a"}, false, []Answer{at(1, "b"), at(1, "b")}, view{1, "b"}},
		{"one epoch, one names another", view{1, "a"}, false, []Answer{at(1, "b")}, view{1, "a"}},
		{"one epoch, the process is no primary", view{1, "a"}, true, []Answer{at(1, "b"), at(1, "a")}, view{1, "b"}},
		{"the same address with a greater epoch", view{1, "a"}, false, []Answer{at(3, "a")}, view{3, "a"}},
	} {
		if got := elect(c.present, c.refuted, c.answers, 2); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
