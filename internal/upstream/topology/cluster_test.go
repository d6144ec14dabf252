package topology

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// newCluster has two seeds, and reaches the server a at another address than the announced one, h:a.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	at, err := ParseAddress("cluster://seed:1,seed:2")
	if err != nil {
		t.Fatal(err)
	}
	return NewCluster(at, AddressMap{"h:a": "nat:7"})
}

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
	c.Show(says("", 1, "", "a1 b1").View)
	a, err := c.Resolve("a")
	if err != nil || a.Address != "nat:7" {
		t.Errorf("a: %+v, %v; want the address of the map", a, err)
	}
	if b, err := c.Resolve("b"); err != nil || b.Address != "h:b" {
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
	c.Show(says("", 1, "", "b1").View)
	<-left
	if _, err := c.Resolve("a"); !errors.Is(err, errGone) {
		t.Errorf("a server that has left: %v", err)
	}
}

func TestASilentServerIsAvoidedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Show(says("", 1, "", "a1 b1").View)
		c.Suspect("a")
		if !c.Silent("a") || c.Silent("b") {
			t.Error("a is silent, and b is not")
		}
		for range 4 {
			if p, _ := c.Resolve(Any); p.Address != "h:b" {
				t.Errorf("any server is the silent one: %s", p.Address)
			}
		}
		c.Doubt("h:b")
		if _, err := c.Resolve(Any); err != nil {
			t.Errorf("if all are silent, one must do: %v", err)
		}
		time.Sleep(silence)
		if c.Silent("a") || c.Silent("b") {
			t.Error("a sign of silence is remembered for ever")
		}
		c.Suspect("a")
		c.Show(says("", 1, "", "a1").View)
		if c.Silent("a") {
			t.Error("a new view is a new beginning")
		}
	})
}
