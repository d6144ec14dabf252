package topology

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Cluster is the servers of a Redis Cluster. The name of a server is the ID that the cluster gave it. All methods may
// be called from any goroutine.
type Cluster struct {
	seeds []string   // addresses that the operator named
	reach AddressMap // of announced addresses
	view  atomic.Pointer[View]
	turns atomic.Uint32 // of the servers that stand for Any

	mu       sync.Mutex
	watchers map[*func()]struct{} // see Watch
	places   map[string]leaving   // of primaries, by address
	// When a server last gave a sign that it does not answer, by the address at which it is reached.
	silent map[string]time.Time
}

// leaving is a place of a primary, and the function that says that the primary is there no more.
type leaving struct {
	place Place
	leave context.CancelFunc
}

// NewCluster returns the topology of a cluster of which nothing is known but some addresses. reach says where announced
// servers are reached.
func NewCluster(a Address, reach AddressMap) *Cluster {
	c := &Cluster{
		reach: reach, places: map[string]leaving{}, silent: map[string]time.Time{},
		watchers: map[*func()]struct{}{},
	}
	for _, s := range a.Servers {
		c.seeds = append(c.seeds, s.Addr)
	}
	c.view.Store(&View{})
	return c
}

// View is what is known of the cluster at present.
func (c *Cluster) View() *View { return c.view.Load() }

// Show replaces the view. Only one goroutine calls it. Attempts to connect to servers that are no primaries any more
// are given up.
func (c *Cluster) Show(v *View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view.Store(v)
	clear(c.silent)
	for address, one := range c.places {
		if !slices.ContainsFunc(v.Nodes(), func(n ClusterNode) bool { return n.Address == address }) {
			one.leave()
			delete(c.places, address)
		}
	}
}

// Watch has f called by Tell until stop is called. f may still be running then.
func (c *Cluster) Watch(f func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[&f] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, &f)
	}
}

// Tell calls the watchers. They must not block.
func (c *Cluster) Tell() {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.watchers))
	c.mu.Unlock()
	for _, f := range all {
		(*f)()
	}
}

// primary is the place of a primary of the present view.
func (c *Cluster) primary(address string) Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, known := c.places[address]
	if !known {
		left, leave := context.WithCancel(context.Background())
		one = leaving{Place{Network: "tcp", Address: c.reach.Of(address), left: left}, leave}
		c.places[address] = one
	}
	return one.place
}

// seedPrefix marks the names of servers that are known by their addresses only.
const seedPrefix = "at "

// Seeds name the servers whose addresses the operator has written down.
func (c *Cluster) Seeds() []Node {
	all := make([]Node, len(c.seeds))
	for i, s := range c.seeds {
		all[i] = Node(seedPrefix + s)
	}
	return all
}

var errGone = errors.New("the server is no longer part of the cluster")

// Resolve returns where a server is now, for net.Dialer. It is asked before every attempt to connect. Any is one
// primary after the other; if none is known, one seed after the other.
func (c *Cluster) Resolve(at Node) (Place, error) {
	v := c.View()
	if at == Any {
		p := c.some(v)
		p.Some = true
		return p, nil
	}
	if addr, ok := strings.CutPrefix(string(at), seedPrefix); ok {
		return tcp(addr), nil
	}
	if n := v.Primary(string(at)); n != nil {
		return c.primary(n.Address), nil
	}
	n := v.Server(string(at))
	if n == nil {
		return Place{}, errGone
	}
	return tcp(c.reach.Of(n.Address)), nil
}

// some is the place of a server that stands for Any.
func (c *Cluster) some(v *View) Place {
	turn, nodes := int(c.turns.Add(1)), v.Nodes()
	if len(nodes) == 0 {
		return tcp(c.seeds[turn%len(c.seeds)])
	}
	for i := range nodes {
		if n := nodes[(turn+i)%len(nodes)]; !c.Silent(Node(n.ID)) {
			return c.primary(n.Address)
		}
	}
	return c.primary(nodes[turn%len(nodes)].Address)
}

func tcp(address string) Place { return Place{Network: "tcp", Address: address} }

// silence is the time for which a server without an answer is avoided where any other will do.
const silence = time.Second

// Suspect says that a server does not answer.
func (c *Cluster) Suspect(at Node) {
	if n := c.View().Primary(string(at)); n != nil {
		c.Doubt(c.reach.Of(n.Address))
	}
}

// Doubt says that a server was not found at an address. The connections that need it have the view refreshed.
func (c *Cluster) Doubt(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent[address] = time.Now()
}

// Silent reports whether a server has not answered lately.
func (c *Cluster) Silent(at Node) bool {
	n := c.View().Primary(string(at))
	if n == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	since, ok := c.silent[c.reach.Of(n.Address)]
	return ok && time.Since(since) < silence
}
