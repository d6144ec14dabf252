package table

import (
	"slices"
	"testing"
	"time"
)

// channelsWorld has a set, and what it has asked for.
type channelsWorld struct {
	*subscriptions[string]
	subscribed []string // in the order of asking
	waits      []time.Duration
}

func newChannelsWorld() *channelsWorld {
	w := &channelsWorld{}
	w.subscriptions = newSubscriptions[string](subscriptionHooks{
		Subscribe: func(name string) { w.subscribed = append(w.subscribed, name) },
		Unsubscribe: func(name string) {
			w.subscribed = slices.DeleteFunc(w.subscribed, func(n string) bool { return n == name })
		},
		Wait: func(d time.Duration) { w.waits = append(w.waits, d) },
	})
	return w
}

func TestListenersShareAChannel(t *testing.T) {
	w := newChannelsWorld()
	if a, same := w.Listen("a"), w.Listen("a"); a != same || w.Len() != 1 || len(w.subscribed) != 1 {
		t.Fatalf("%v subscribed", w.subscribed)
	}
	w.Leave(w.Find("a"))
	if len(w.waits) != 0 {
		t.Fatal("it counts as unused while it has a listener")
	}
}

func TestUnusedChannelsStayForAWholeRound(t *testing.T) {
	w := newChannelsWorld()
	c := w.Listen("a")
	w.Leave(c)
	w.Due()
	if len(w.subscribed) != 1 {
		t.Fatal("given up in the round in which it was left")
	}
	w.Listen("a")
	w.Due()
	if len(w.subscribed) != 1 {
		t.Fatal("given up although it is wanted again")
	}
	w.Leave(c)
	w.Due()
	rounds := len(w.waits)
	w.Due()
	if len(w.subscribed) != 0 || w.Len() != 0 || len(w.waits) != rounds {
		t.Fatalf("%v stay for ever, %d more rounds", w.subscribed, len(w.waits)-rounds)
	}
	for _, d := range w.waits {
		if d != lingerTime {
			t.Fatalf("rounds of %v", w.waits)
		}
	}
}

func TestManyUnusedChannelsAreDealtWithInSlices(t *testing.T) {
	w := newChannelsWorld()
	for i := range 3 * channelSlice {
		w.Leave(w.Listen(string(rune(i))))
	}
	for range 3 { // the round in which they were left
		w.Due()
	}
	w.Due()
	if got := w.Len(); got != 2*channelSlice {
		t.Fatalf("%d channels after a slice of the second round", got)
	}
	if last := w.waits[len(w.waits)-1]; last != lingerTime/100 {
		t.Fatalf("the next slice comes after %v", last)
	}
}

func TestARefusedChannelIsAskedForAnew(t *testing.T) {
	w := newChannelsWorld()
	c := w.Listen("a")
	if w.Refused("a") != c || w.Refused("a") != nil {
		t.Fatal("the channel of a refusal")
	}
	again := w.Listen("a")
	w.Leave(c)
	if again == c || len(w.waits) != 0 || !slices.Equal(w.subscribed, []string{"a", "a"}) {
		t.Fatalf("%v subscribed", w.subscribed)
	}
}

func TestMarkTellsWhetherSomethingWasMissed(t *testing.T) {
	w := newChannelsWorld()
	c := w.Listen("a")
	if m := c.Mark(); !m.Missed(c) || m.Missed(nil) {
		t.Fatal("a channel that is not confirmed yet")
	}
	if c, missed := w.Confirmed("a"); c == nil || missed {
		t.Fatal("the first confirmation")
	}
	m := c.Mark()
	if m.Missed(c) {
		t.Fatal("nothing was told")
	}
	w.Told("a")
	if !m.Missed(c) {
		t.Fatal("a message was missed")
	}
	m = c.Mark()
	if _, missed := w.Confirmed("a"); !missed || !m.Missed(c) {
		t.Fatal("a new connection may have missed messages")
	}
	if w.Told("other") != nil {
		t.Fatal("a message on a channel that is not wanted")
	}
}
