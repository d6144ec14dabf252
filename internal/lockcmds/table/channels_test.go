package table

import (
	"slices"
	"testing"
	"time"
)

// channelsWorld has a table, and what it has asked for about channels.
type channelsWorld struct {
	*Table
	subscribed []string // in the order of asking
	waits      []time.Duration
}

func newChannelsWorld() *channelsWorld { return &channelsWorld{Table: New(Config{})} }

// take notes what the table has asked for.
func (w *channelsWorld) take() *channelsWorld {
	for _, f := range w.Effects() {
		switch f.Op {
		case Subscribe:
			w.subscribed = append(w.subscribed, f.Channel)
		case Unsubscribe:
			w.subscribed = slices.DeleteFunc(w.subscribed, func(n string) bool { return n == f.Channel })
		case Tidy:
			w.waits = append(w.waits, f.Delay)
		default:
			panic(f.Op)
		}
	}
	return w
}

func TestListenersShareAChannel(t *testing.T) {
	w := newChannelsWorld()
	if a, same := w.listen("a"), w.listen("a"); a != same || len(w.channels.byName) != 1 || len(w.take().subscribed) != 1 {
		t.Fatalf("%v subscribed", w.take().subscribed)
	}
	w.unlisten(w.channels.byName["a"])
	if len(w.take().waits) != 0 {
		t.Fatal("it counts as unused while it has a listener")
	}
}

func TestUnusedChannelsStayForAWholeRound(t *testing.T) {
	w := newChannelsWorld()
	c := w.listen("a")
	w.unlisten(c)
	w.TidyDue()
	if len(w.take().subscribed) != 1 {
		t.Fatal("given up in the round in which it was left")
	}
	w.listen("a")
	w.TidyDue()
	if len(w.take().subscribed) != 1 {
		t.Fatal("given up although it is wanted again")
	}
	w.unlisten(c)
	w.TidyDue()
	if len(w.take().subscribed) != 1 {
		t.Fatal("given up in the round in which it was left for the second time")
	}
	rounds := len(w.take().waits)
	w.TidyDue()
	if len(w.take().subscribed) != 0 || len(w.channels.byName) != 0 || len(w.take().waits) != rounds {
		t.Fatalf("%v stay for ever, %d more rounds", w.take().subscribed, len(w.take().waits)-rounds)
	}
	for _, d := range w.take().waits {
		if d != lingerTime {
			t.Fatalf("rounds of %v", w.take().waits)
		}
	}
}

func TestManyUnusedChannelsAreDealtWithInSlices(t *testing.T) {
	w := newChannelsWorld()
	for i := range 3 * channelSlice {
		w.unlisten(w.listen(string(rune(i))))
	}
	w.TidyDue() // the end of the round in which they were left
	w.TidyDue()
	if got := len(w.channels.byName); got != 2*channelSlice {
		t.Fatalf("%d channels after a slice of the second round", got)
	}
	if last := w.take().waits[len(w.take().waits)-1]; last != lingerTime/100 {
		t.Fatalf("the next slice comes after %v", last)
	}
}

func TestARefusedChannelIsAskedForAnew(t *testing.T) {
	w := newChannelsWorld()
	c := w.listen("a")
	if w.channels.refuse("a") != c || w.channels.refuse("a") != nil {
		t.Fatal("the channel of a refusal")
	}
	again := w.listen("a")
	w.unlisten(c)
	if again == c || len(w.take().waits) != 0 || !slices.Equal(w.take().subscribed, []string{"a", "a"}) {
		t.Fatalf("%v subscribed", w.take().subscribed)
	}
	w.unlisten(again)
	w.channels.refuse("a") // nobody listens, and it is not unsubscribed
	w.TidyDue()
	if w.TidyDue(); len(w.take().subscribed) != 2 || w.channels.unused.Len() != 0 {
		t.Fatalf("%v subscribed", w.take().subscribed)
	}
}

func TestMarkTellsWhetherSomethingWasMissed(t *testing.T) {
	w := newChannelsWorld()
	c := w.listen("a")
	if m := c.mark(); !m.missed(c) || m.missed(nil) {
		t.Fatal("a channel that is not confirmed yet")
	}
	if c, missed := w.channels.confirmed("a"); c == nil || missed {
		t.Fatal("the first confirmation")
	}
	m := c.mark()
	if m.missed(c) {
		t.Fatal("nothing was told")
	}
	w.channels.told("a")
	if !m.missed(c) {
		t.Fatal("a message was missed")
	}
	m = c.mark()
	if _, missed := w.channels.confirmed("a"); !missed || !m.missed(c) {
		t.Fatal("a new connection may have missed messages")
	}
	if w.channels.told("other") != nil {
		t.Fatal("a message on a channel that is not wanted")
	}
}
