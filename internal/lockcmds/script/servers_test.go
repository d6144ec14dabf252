package script

import (
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
)

func TestCallsInAClusterKeepToOneSlot(t *testing.T) {
	part := Part{Owner: "PUBLISH", Session: "s"}
	named := Acquire{Key: "k", Part: part, Lease: time.Second}
	alone := Acquire{Key: "k", Part: Part{Owner: "PUBLISH"}, Lease: time.Second}
	release := Release{Key: "k", Part: part}
	for _, c := range []Call{
		named.Call(), alone.Call(), Attempt{Acquire: alone, Way: AtOwnPlace, Place: "PUBLISH"}.Call(), release.Call(),
		Release{Key: "k", Part: Part{Owner: "PUBLISH"}}.Call(), HandOver{Release: release, Plain: &named, Fair: &alone, Crowd: "p"}.Call(),
		Drop{Key: "k", Part: part}.Call(), Force{Key: "k"}.Call(), Extend{Key: "k", Part: part}.Call(), Info{Key: "k"}.Call(), Head{"k"}.Call(),
		Leave{Key: "k", Places: []string{"PUBLISH"}}.Call(), Refresh{Key: "k"}.Call(), RemoveHead{Key: "k", Place: "PUBLISH"}.Call(),
		Renew{Renewals: []Renewal{{Key: "k", Owner: "PUBLISH"}}}.Call(), Ask{}.Call(),
		Attempt{Acquire: named, Way: AtOwnPlace, Place: "PUBLISH"}.SharedCall(),
	} {
		counter, at := slices.Index(c.keys.first, "counter"), slices.Index(c.args.first, "publish")
		one := c.On(Servers{})
		args := slices.Clone(c.Args)
		if counter >= 0 && one.Keys[counter] != Fence || at >= 0 && args[at] != "PUBLISH" {
			t.Errorf("%s for one server: %q %q", c.Name(), one.Keys, one.Args)
		}
		for range 2 {
			c = c.On(Servers{Slots: true, Sharded: true})
		}
		for _, key := range c.Keys {
			if hashslot.Of([]byte(key)) != hashslot.Of([]byte("k")) {
				t.Errorf("%s: %q is of another slot", c.Name(), key)
			}
		}
		if at >= 0 {
			args[at] = "SPUBLISH"
		}
		if !slices.Equal(args, c.Args) {
			t.Errorf("%s: %q, want %q", c.Name(), c.Args, args)
		}
	}
}
