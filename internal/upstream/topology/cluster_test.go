package topology

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// newCluster has the primaries a, at 10.0.0.1:1, and b, at 10.0.0.2:2, where the first is reached at nat:7.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	at, err := ParseAddress("cluster://seed:1,seed:2")
	if err != nil {
		t.Fatal(err)
	}
	return NewCluster(at, AddressMap{"10.0.0.1:1": "nat:7"})
}

// A share is a primary with a range of slots.
type share struct {
	id, address string
	from, to    int // both inclusive
}

// viewOf is the view of a cluster of these primaries.
func viewOf(shares ...share) *View {
	v := &View{OK: true, Epoch: 1}
	for i, s := range shares {
		v.nodes = append(v.nodes, ClusterNode{ID: s.id, Address: s.address})
		for slot := s.from; slot <= s.to; slot++ {
			v.owner[slot] = uint16(i + 1)
		}
	}
	return v
}

var (
	shareOfA = share{"a", "10.0.0.1:1", 0, 99}
	shareOfB = share{"b", "10.0.0.2:2", 100, 16383}
)

func TestServersOfAClusterAreFoundByTheirIDs(t *testing.T) {
	c := newCluster(t)
	if _, err := c.Resolve("a"); !errors.Is(err, errGone) {
		t.Errorf("before the first view: %v", err)
	}
	for range 2 { // the seeds take turns
		if p, err := c.Resolve(Any); err != nil || p.Address != "seed:1" && p.Address != "seed:2" {
			t.Errorf("any server: %+v, %v", p, err)
		}
	}
	c.Show(viewOf(shareOfA, shareOfB))
	a, err := c.Resolve("a")
	if err != nil || a.Address != "nat:7" {
		t.Errorf("a: %+v, %v; want the address of the map", a, err)
	}
	if b, err := c.Resolve("b"); err != nil || b.Address != "10.0.0.2:2" {
		t.Errorf("b: %+v, %v", b, err)
	}
	if p, err := c.Resolve(Any); err != nil || !p.Some || a.Some {
		t.Errorf("any server: %+v, %v; a: %+v", p, err, a)
	}
	for _, seed := range c.Seeds() {
		if p, err := c.Resolve(seed); err != nil || p.Left() {
			t.Errorf("%s: %+v, %v", seed, p, err)
		}
	}
	left := make(chan struct{})
	a.OnLeft(func() { close(left) })
	c.Show(viewOf(shareOfB))
	<-left
	if _, err := c.Resolve("a"); !errors.Is(err, errGone) {
		t.Errorf("a server that has left: %v", err)
	}
}

func TestASilentServerIsAvoidedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Show(viewOf(shareOfA, shareOfB))
		c.Suspect("a")
		if !c.Silent("a") || c.Silent("b") {
			t.Error("a is silent, and b is not")
		}
		for range 4 {
			if p, _ := c.Resolve(Any); p.Address != "10.0.0.2:2" {
				t.Errorf("any server is the silent one: %s", p.Address)
			}
		}
		c.Doubt("10.0.0.2:2")
		if _, err := c.Resolve(Any); err != nil {
			t.Errorf("if all are silent, one must do: %v", err)
		}
		time.Sleep(silence)
		if c.Silent("a") || c.Silent("b") {
			t.Error("a sign of silence is remembered for ever")
		}
		c.Suspect("a")
		c.Show(viewOf(shareOfA))
		if c.Silent("a") {
			t.Error("a new view is a new beginning")
		}
	})
}
