package lockcmds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// listening waits until a number of proxies listen to the channel of grants that are ended by force.
func listening(t *testing.T, srv *redistest.Server, proxies int) {
	t.Helper()
	want := fmt.Sprintf("[%s %d]", script.ForcedChannel, proxies)
	redistest.Eventually(t, patience, "the proxies to listen", func() bool { return fmt.Sprint(srv.Do(t, "PUBSUB", "NUMSUB", script.ForcedChannel)) == want })
}

func TestAForcedEndIsOfTheGrantThatWasNamed(t *testing.T) {
	w, a := newLockWorld(t), newClient(1)
	h := w.acquire(t, a, "", nil)
	w.force(h.Key, fence+1)
	if w.Holds() != 1 {
		t.Fatal("another grant was ended")
	}
	w.force(h.Key, fence)
	w.force(h.Key, fence)
	w.Work()
	if got := strings.Join(w.lost, " "); got != "forced" || w.Holds() != 0 || len(a.Pushes) != 1 {
		t.Errorf("losses %q, %d holds, told %q", got, w.Holds(), a.Pushes)
	}
	next := w.acquire(t, a, "", func(g *table.Grant) { g.Fence++ })
	if w.onLost(next, "deadline"); w.Holds() != 1 || len(w.lost) != 1 {
		t.Error("a lease that was set anew meanwhile is lost")
	}
	if w.loses(h, "deadline"); w.Holds() != 1 || len(w.lost) != 1 {
		t.Error("the lease of a hold that has ended is lost once more")
	}
}

// A holder learns of FORCEUNLOCK through any proxy at once, whatever its name and lease, and once.
func TestForcedHolderIsToldAtOnce(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	lost := subscribed(t, p.srv.Client(t), script.Lost("k")).Channel()
	for name, by := range map[string]*session{"another proxy": q.session(2), "the same proxy": p.session(2)} {
		for _, command := range []string{"LOCK k", "LOCK k PX 60000", "FAIRLOCK k PX 60000", "LOCK k OWNER job", "TRYLOCK k PX 60000 OWNER job"} {
			a := p.session(3)
			fence := itoa(a.fence(command)) // the first one of all is ended before the proxy may have begun to listen
			by.want("FORCEUNLOCK k", ":1")
			equal(t, command+" through "+name, a.push(), ">[lock-lost k :"+fence+" forced]")
			select {
			case m := <-lost:
				equal(t, "message", m.Payload, fence+" forced")
			case <-time.After(patience):
				t.Fatal("the channel is not told")
			}
			next := a.fence("LOCK k")
			a.want("UNLOCK k", ":1")
			if itoa(next) == fence {
				t.Error("the same grant again")
			}
			a.quiet(20 * time.Millisecond)
			select {
			case m := <-lost:
				t.Errorf("%s through %s: the channel is told again: %s", command, name, m.Payload)
			case p := <-a.Pushes:
				t.Errorf("%s through %s: the holder is told again: %s", command, name, p)
			default:
			}
		}
	}
}

// The channel is told although no proxy has the hold any more.
func TestForcedLockOfAClientThatHasGoneIsTold(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	lost := subscribed(t, p.srv.Client(t), script.Lost("k"))
	a := p.session(2)
	fence := itoa(a.fence("LOCK k PX 60000"))
	a.hangUp()
	q.session(2).want("FORCEUNLOCK k", ":1")
	equal(t, "message", nextMessage(t, lost), fence+" forced")
}

// Every client with the right may publish. A message is a reason to look, and no more.
func TestAForgedMessageEndsNoHold(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, nil)
	a, b := p.session(3), p.session(3)
	fence, other := a.fence("LOCK k PX 60000"), b.fence("LOCK other PX 60000")
	listening(t, srv, 2)
	for _, text := range []string{itoa(fence) + " k", "k", "", "0 k", itoa(fence)} {
		srv.Do(t, "PUBLISH", script.ForcedChannel, text)
	}
	// However many there are, Redis is asked once at a time, and they do not hold up the next one.
	before := scriptCalls(t, srv)
	srv.Do(t, "EVAL", "for i = 1, 10000 do redis.call('PUBLISH', KEYS[1], ARGV[1]) end", "1", script.ForcedChannel, itoa(fence)+" k")
	q.session(2).want("FORCEUNLOCK other", ":1")
	equal(t, "behind them", b.push(), ">[lock-lost other :"+itoa(other)+" forced]")
	if n := scriptCalls(t, srv) - before; n > 5000 {
		t.Errorf("%d scripts for 10000 messages", n)
	}
	a.quiet(50 * time.Millisecond)
	a.want("UNLOCK k", ":1")
}
