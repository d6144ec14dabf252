package proxy

import (
	"fmt"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestEndOfAConnectionGivesBackItsHoldsOfASharedOwner has two connections hold for one owner, at one proxy and at two.
func TestEndOfAConnectionGivesBackItsHoldsOfASharedOwner(t *testing.T) {
	t.Parallel()
	for _, engine := range engineNames() {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprintf("%s/%d", engine, n), func(t *testing.T) {
				t.Parallel()
				redis := redistest.Start(t)
				first := startProxy(t, redis, func(o *Options) { o.Engine = engine })
				second := first
				if n == 2 {
					second = startProxy(t, redis, func(o *Options) { o.Engine = engine })
				}
				a, b, w := dialClient(t, address(first)), dialClient(t, address(second)), dialClient(t, address(first))
				a.script("LOCK k OWNER me GRACE 0", ":", "LOCK k OWNER me GRACE 0", ":")
				b.script("LOCK k OWNER me GRACE 0", ":")
				_ = a.nc.Close()
				redistest.Eventually(t, patience, "the holds of the first connection to be given back", func() bool {
					return redis.Client(t).HGet(t.Context(), "k", "me").Val() == "1"
				})
				w.script("TRYLOCK k", "$-1")
				b.script("LOCK k OWNER me GRACE 0", ":", "UNLOCK k OWNER me", ":0")
				w.send("LOCK", "k", "WAIT", "8000")
				redistest.Eventually(t, patience, "the waiter", func() bool { return first.Stats().Waiting == 1 })
				_ = b.nc.Close()
				if got, err := w.frame(); err != nil || got[0] != ':' {
					t.Fatalf("%q, %v", got, err)
				}
			})
		}
	}
}
