package redislink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// A fleet has the view that a test shows.
type fleet struct {
	mu        sync.Mutex
	view      *topology.View
	changed   func()
	refreshed []string // the hints
	dial      bool     // servers can be reached; their names are addresses
}

func (f *fleet) View() *topology.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view
}

// show replaces the view.
func (f *fleet) show(v *topology.View) {
	f.mu.Lock()
	f.view = v
	changed := f.changed
	f.mu.Unlock()
	if changed != nil {
		changed()
	}
}

func (f *fleet) Watch(told func()) (stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = told
	return func() {}
}

func (f *fleet) Refresh(hint topology.Node, then func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refreshed = append(f.refreshed, "refresh "+string(hint))
	if then != nil {
		go then()
	}
}

func (f *fleet) Connect(ctx context.Context, at topology.Node) (net.Conn, error) {
	if !f.dial {
		return nil, errors.New("away")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", f.View().Server(string(at)).Address)
}

func (f *fleet) Sharded() bool { return false }

func share(id, address string, from, to int) clustertest.Share {
	return clustertest.Share{ID: id, Address: address, From: from, To: to}
}

func halves(t *testing.T) *topology.View {
	return clustertest.View(t, share("a", "10.0.0.1:1", 0, 8191), share("b", "10.0.0.2:2", 8192, 16383))
}

func newCluster(t *testing.T, f *fleet) *Cluster {
	t.Helper()
	c := NewCluster(f, Options{})
	t.Cleanup(c.Close)
	return c
}

// A call follows the refusals of servers, which have not run it. It is made once if a server may have.
func TestACallFindsTheServerOfItsSlot(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error // of the servers, one after the other
		want    string
		fails   error
	}{
		"the view is right":                     {[]error{nil}, "a", nil},
		"the slot has moved":                    {[]error{Refusal("MOVED 5 10.0.0.2:2"), nil}, "a, b, refresh b", nil},
		"the slot is being moved":               {[]error{Refusal("ASK 5 10.0.0.2:2"), nil}, "a, b asking", nil},
		"without a host, that of the one asked": {[]error{Refusal("ASK 5 :2"), nil}, "a, b asking", nil},
		"moved there and back":                  {[]error{Refusal("ASK 5 10.0.0.2:2"), Refusal("MOVED 5 10.0.0.1:1"), nil}, "a, b asking, a, refresh a", nil},
		"to a server that the view lacks":       {[]error{Refusal("MOVED 5 10.9.9.9:9")}, "a, refresh a", ErrUnsent},
		"a script's own words":                  {[]error{Refusal("MOVED 6 10.0.0.2:2")}, "a", Refusal("MOVED 6 10.0.0.2:2")},
		"the cluster is down":                   {[]error{Refusal("CLUSTERDOWN The cluster is down")}, "a, refresh a", Refusal("CLUSTERDOWN The cluster is down")},
		"each sends it to the other":            {[]error{Refusal("MOVED 5 10.0.0.2:2"), Refusal("MOVED 5 10.0.0.1:1"), Refusal("MOVED 5 10.0.0.2:2"), Refusal("MOVED 5 10.0.0.1:1")}, "a, b, a, b, refresh b, refresh a, refresh b, refresh a", ErrUnsent},
		"the server cannot be reached":          {[]error{ErrUnsent}, "a, refresh ", ErrUnsent},
		"the server does not answer":            {[]error{context.DeadlineExceeded}, "a, refresh ", context.DeadlineExceeded},
		"the connection is lost, and then some": {[]error{ErrInDoubt}, "a", ErrInDoubt},
		"another error of Redis":                {[]error{Refusal("NOPERM this user has no permissions")}, "a", Refusal("NOPERM this user has no permissions")},
	} {
		f := &fleet{view: halves(t)}
		if strings.Contains(name, "without a host") {
			f.view = clustertest.View(t, share("a", "10.0.0.1:1", 0, 8191), share("b", "10.0.0.1:2", 8192, 16383))
		}
		var calls []string
		v, err := slotNode{newCluster(t, f), 5}.route(t.Context(), func(_ context.Context, s *server, asking bool) (v resp.Value, err error) {
			text := string(s.at)
			if asking {
				text += " asking"
			}
			calls = append(calls, text)
			if len(calls) > len(c.answers) {
				return v, errors.New("one call too many")
			}
			err = c.answers[len(calls)-1]
			if refusal := Refusal(""); errors.As(err, &refusal) {
				return resp.Value{Kind: resp.SimpleError, Str: []byte(refusal)}, nil
			}
			return v, err
		})
		if v.IsError() {
			err = Refusal(v.Str)
		}
		if got := strings.Join(append(calls, f.refreshed...), ", "); got != c.want || !errors.Is(err, c.fails) {
			t.Errorf("%s: %s; %v, want %s; %v", name, got, err, c.want, c.fails)
		}
	}
}

func TestACallWithoutAServer(t *testing.T) {
	never := func(context.Context, *server, bool) (v resp.Value, err error) { return v, errors.New("called") }
	f := &fleet{view: clustertest.View(t, share("a", "10.0.0.1:1", 0, 100))}
	c := newCluster(t, f)
	n := slotNode{c, 101}
	if _, err := n.route(t.Context(), never); !errors.Is(err, errNobody) || !errors.Is(err, ErrUnsent) {
		t.Errorf("a slot without an owner: %v", err)
	}
	if err := n.Server().Confirm(nil); !errors.Is(err, errNobody) {
		t.Errorf("Confirm: %v", err)
	}
	if !slices.Equal(f.refreshed, []string{"refresh ", "refresh "}) {
		t.Errorf("the view is not looked at: %q", f.refreshed)
	}
	c.Close()
	if _, err := (slotNode{c, 5}).route(t.Context(), never); !errors.Is(err, errClosed) || !errors.Is(err, ErrUnsent) {
		t.Errorf("after Close: %v", err)
	}
}

// Servers and nodes may be compared: batches are made by them.
func TestSlotsOfOneServerShareIt(t *testing.T) {
	c := newCluster(t, &fleet{view: halves(t)})
	at := func(slot int) Server { return slotNode{c, slot}.Server() }
	if at(1) != at(2) || at(1) == at(9000) {
		t.Error("a server is that of its slots, and of no other")
	}
	if c.Node("{x}1") != c.Node("{x}2") || c.Node("x") == c.Node("y") {
		t.Error("a node is one slot")
	}
}

// Channels are subscribed at the owners of their slots, by the present view.
func TestChannelsFollowTheirSlots(t *testing.T) {
	f := &fleet{view: halves(t)}
	c := newCluster(t, f)
	settle := func(v *topology.View) {
		f.view = v
		c.follow()
	}
	var low, high string // channels of the two halves
	for i := 0; low == "" || high == ""; i++ {
		if name := fmt.Sprint(i); hashslot.Of([]byte(name)) < 8192 {
			low = name
		} else {
			high = name
		}
	}
	check := func(what string, want map[string]topology.Node, servers ...topology.Node) {
		t.Helper()
		if !maps.Equal(c.at, want) {
			t.Errorf("%s: %v, want %v", what, c.at, want)
		}
		var names []topology.Node
		for _, s := range c.servers {
			for channel, at := range c.at {
				if _, has := s.subs.wanted[channel]; has != (at == s.at) {
					t.Errorf("%s: %s is subscribed at %q: %v", what, channel, s.at, has)
				}
			}
			names = append(names, s.at)
		}
		if slices.Sort(names); !slices.Equal(names, servers) {
			t.Errorf("%s: the servers %v, want %v", what, names, servers)
		}
	}
	c.Node(low).Subscribe(low)
	c.Node(high).Subscribe(high)
	check("at first", map[string]topology.Node{low: "a", high: "b"}, "a", "b")
	settle(clustertest.View(t, share("a", "10.0.0.1:1", 0, 16382), share("b", "10.0.0.2:2", 16383, 16383)))
	check("the slots have moved", map[string]topology.Node{low: "a", high: "a"}, "a", "b")
	settle(clustertest.View(t, share("a", "10.0.0.1:1", 8192, 16383)))
	check("a slot has no owner, and a server no slots", map[string]topology.Node{low: "a", high: "a"}, "a", "b")
	subscribed := c.server("a")
	settle(clustertest.View(t, share("b", "10.0.0.2:2", 0, 8191)))
	check("another server has no slots", map[string]topology.Node{low: "b", high: "a"}, "a", "b")
	settle(clustertest.View(t, share("a", "10.0.0.1:1", 0, 16383)))
	check("all slots have an owner", map[string]topology.Node{low: "a", high: "a"}, "a")
	if c.server("a") != subscribed {
		t.Errorf("%s has lost its subscription", high)
	}
	c.Node(high).Unsubscribe(high)
	settle(clustertest.View(t, share("c", "10.0.0.3:3", 0, 16383)))
	check("a new server", map[string]topology.Node{low: "c"}, "c")
}

// The view is stale: it has the two halves of the slots the wrong way round. Calls find their servers by the refusals
// of real ones. So do subscriptions, when the view is right.
func TestAStaleViewInFrontOfRealServers(t *testing.T) {
	real := redistest.StartCluster(t, 2, 0)
	id := func(i int) string { return real.ID(real.Nodes[i]) }
	address := func(i int) string { return real.Nodes[i].Addr() }
	first := 0
	if real.Owner(0) == real.Nodes[1] {
		first = 1
	}
	right := clustertest.View(t, share(id(first), address(first), 0, 8191), share(id(1-first), address(1-first), 8192, 16383))
	f := &fleet{dial: true, view: clustertest.View(t, share(id(first), address(first), 8192, 16383), share(id(1-first), address(1-first), 0, 8191))}
	c := newCluster(t, f)
	told := make(heard, 100)
	c.Listen(told)
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() { c.Run(ctx) })
	defer runs.Wait()
	defer cancel()
	const pushes = text("redis.call('RPUSH', KEYS[1], ARGV[1]) return redis.call('LLEN', KEYS[1])")
	for i := range 10 {
		key := fmt.Sprint("k", i)
		n := c.Node(key)
		for want := range int64(2) {
			if v, err := n.Eval(t.Context(), pushes, []string{key}, []string{"v"}); err != nil || v.Kind != resp.Integer || v.Int != want+1 {
				t.Errorf("%s: %+v, %v", key, v, err)
			}
		}
	}
	if len(f.refreshed) < 20 {
		t.Errorf("%d signs of change were reported", len(f.refreshed))
	}
	f.show(right)
	c.Node("k1").Subscribe("k1")
	told.want(t, "confirmed k1")
	publishes := text("return redis.call('PUBLISH', KEYS[1], 'x')")
	if _, err := c.Node("k1").Eval(t.Context(), publishes, []string{"k1"}, nil); err != nil {
		t.Fatal(err)
	}
	told.want(t, "published k1")
}
