package topology

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/address"
	"github.com/lockproxy/lockproxy/internal/upstream/cluster"
)

// newCluster has the primaries a, at 10.0.0.1:1, and b, at 10.0.0.2:2, where the first is reached at nat:7.
func newCluster(t *testing.T) *Cluster {
	t.Helper()
	at, err := address.Parse("cluster://seed:1,seed:2")
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCluster(at, address.Map{"10.0.0.1:1": "nat:7"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	slotsOfA = "*3\r\n:0\r\n:99\r\n*3\r\n$8\r\n10.0.0.1\r\n:1\r\n$1\r\na\r\n"
	slotsOfB = "*3\r\n:100\r\n:16383\r\n*3\r\n$8\r\n10.0.0.2\r\n:2\r\n$1\r\nb\r\n"
)

func view(t *testing.T, answer string) *cluster.View {
	t.Helper()
	a, _, err := resp.Decode([]byte(answer))
	if err != nil {
		t.Fatal(err)
	}
	told, err := cluster.ReadSlots(a, "h:1")
	if err != nil {
		t.Fatal(err)
	}
	return told.View("cluster_state:ok\r\ncluster_current_epoch:1\r\n")
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
	c.Show(view(t, "*2\r\n"+slotsOfA+slotsOfB))
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
	c.Show(view(t, "*1\r\n"+slotsOfB))
	<-left
	if _, err := c.Resolve("a"); !errors.Is(err, errGone) {
		t.Errorf("a server that has left: %v", err)
	}
}

func TestASilentServerIsAvoidedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.Show(view(t, "*2\r\n"+slotsOfA+slotsOfB))
		c.Suspect("a")
		if !c.Silent("a") || c.Silent("b") {
			t.Error("a is silent, and b is not")
		}
		for range 4 {
			if p, _ := c.Resolve(Any); p.Address != "10.0.0.2:2" {
				t.Errorf("any server is the silent one: %s", p.Address)
			}
		}
		c.Doubt("b", Place{Address: "10.0.0.2:2"}, errors.New("refused"))
		if _, err := c.Resolve(Any); err != nil {
			t.Errorf("if all are silent, one must do: %v", err)
		}
		time.Sleep(silence)
		if c.Silent("a") || c.Silent("b") {
			t.Error("a sign of silence is remembered for ever")
		}
		c.Suspect("a")
		c.Show(view(t, "*1\r\n"+slotsOfA))
		if c.Silent("a") {
			t.Error("a new view is a new beginning")
		}
	})
}
