package script

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
)

func TestEachSlotHasAFenceCounter(t *testing.T) {
	all := sha1.New()
	for slot, key := range fenceKeys() {
		if hashslot.Of([]byte(key)) != slot {
			t.Fatalf("%s is not of slot %d", key, slot)
		}
		fmt.Fprintln(all, key)
	}
	const known = "d6c384dbec71bce76313877b91fe659040113d99" // never changes: proxies of different versions share the counters
	if got := hex.EncodeToString(all.Sum(nil)); got != known {
		t.Errorf("the names of the fence counters have changed: %s", got)
	}
	if got := FenceOf("foo", true); got != FenceOf("x{foo}", true) || !strings.HasPrefix(got, Fence+":{") {
		t.Errorf("the counter of foo is %s", got)
	}
	if got := FenceOf("foo", false); got != Fence {
		t.Errorf("on one server it is %s", got)
	}
}
