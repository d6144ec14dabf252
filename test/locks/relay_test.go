package locks

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// relays is the network that needs no privileges: everybody is on the loopback interface, and each pair of parties is
// connected by a relay. What is cut off is held back, not lost; the kernels on both sides acknowledge it all the same,
// so unlike in a real partition nobody's retransmissions time out.
type relays map[[2]node]*redistest.Relay // client side first

func newRelays(t *testing.T, listens map[node]string) relays {
	t.Helper()
	r := relays{}
	for _, p := range pairs {
		if to := listens[p[1]]; to != "" {
			r[p] = redistest.StartRelay(t, to)
		}
	}
	return r
}

func (r relays) reach(from, to node) string { return r[[2]node{from, to}].Addr() }

func (r relays) cut(from, to node) {
	if one := r[[2]node{from, to}]; one != nil {
		one.Hold(redistest.ToServer)
		return
	}
	r[[2]node{to, from}].Hold(redistest.ToClients)
}

func (r relays) heal() {
	for _, one := range r {
		one.Pass()
	}
}
