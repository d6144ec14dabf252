package redislink

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// This file has the lock engine's way to the servers of a Redis Cluster, with a client of package redislink for each.
//
//	Node(key).Eval ──► the slot's owner, by the view ──MOVED, ASK──► the server that Redis names, if the view has it
//	Node(channel).Subscribe ──► place ──► the subscriber of the slot's owner; of the next one when the view changes
//
// A call that a server refuses for the cluster's sake has not run. If no other server is known that can run it,
// ErrUnsent or Redis's refusal says so.

// Fleet is what a Cluster is told of the servers.
type Fleet interface {
	// View is the present view.
	View() *topology.View
	// Watch has f called whenever the view has changed, until stop is called. f must not block. It may still be running
	// after stop.
	Watch(f func()) (stop func())
	// Refresh has then called from another goroutine when the view has been refreshed by a question that has begun
	// after this call. hint is a server that should know of a change. then may be nil.
	Refresh(hint topology.Node, then func())
	// Connect opens a connection to a server.
	Connect(ctx context.Context, at topology.Node) (net.Conn, error)
	// Sharded reports whether the servers know SPUBLISH and SSUBSCRIBE. Redisson's clients use them then, and in a
	// cluster only.
	Sharded() bool
}

// Cluster is the Topology of a Redis Cluster. It has a Node for each hash slot, so renewals of one batch are of one
// slot, and a Client for each server that it needs.
type Cluster struct {
	fleet    Fleet
	opts     Options // what all servers have in common
	listener Listener
	runs     sync.WaitGroup // the subscribers

	mu      sync.Mutex // guards the fields below
	servers map[topology.Node]*server
	at      map[string]topology.Node // where the wanted channels are subscribed; Any: no server is known
	closed  bool
}

// NewCluster makes a Cluster without connections. Of the options it takes the user and the logger.
func NewCluster(fleet Fleet, opts Options) *Cluster {
	return &Cluster{fleet: fleet, opts: opts, servers: map[topology.Node]*server{}, at: map[string]topology.Node{}}
}

// Servers implements Topology.
func (c *Cluster) Servers() script.Servers {
	return script.Servers{Slots: true, Sharded: c.fleet.Sharded()}
}

// Node implements Topology.
func (c *Cluster) Node(key string) Node { return slotNode{c, hashslot.Of([]byte(key))} }

// Listen implements Topology.
func (c *Cluster) Listen(l Listener) { c.listener = l }

// server returns the server of that name; nil: this Cluster is closed.
func (c *Cluster) server(at topology.Node) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serverLocked(at)
}

func (c *Cluster) serverLocked(at topology.Node) *server {
	s := c.servers[at]
	if s == nil && !c.closed {
		s = c.newServer(at)
		c.servers[at] = s
	}
	return s
}

// place subscribes a channel, if it is still wanted, at the owner of its slot by the present view: anew also at the
// server where it is.
func (c *Cluster) place(channel string, anew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, wanted := c.at[channel]; wanted {
		c.placeLocked(channel, anew)
	}
}

// placeLocked is place for a channel that is wanted from now on. If no server owns the slot, it stays where it is.
func (c *Cluster) placeLocked(channel string, anew bool) {
	old := c.at[channel]
	at, before := old, c.servers[old]
	if owner := c.fleet.View().Owner(hashslot.Of([]byte(channel))); owner != nil {
		at = topology.Node(owner.ID)
	}
	c.at[channel] = at
	switch {
	case at == topology.Any || at == old && before != nil && !anew:
		return
	case at != old && before != nil:
		before.Unsubscribe(channel)
	}
	if s := c.serverLocked(at); s != nil {
		s.Subscribe(channel)
	}
}

// leave gives a channel up.
func (c *Cluster) leave(channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.servers[c.at[channel]]; s != nil {
		s.Unsubscribe(channel)
	}
	delete(c.at, channel)
}

// moved notes that a channel has no subscription at its server any more, unless Redis has refused it for good. When the
// view is fresh it gets one, there or elsewhere.
func (c *Cluster) moved(channel string, why Refusal) bool {
	if why != "" && refusal(why).Reason == topology.NotRefused {
		return false
	}
	c.fleet.Refresh(topology.Any, func() { c.place(channel, true) })
	return true
}

// Run implements Topology: the subscriptions follow the view.
func (c *Cluster) Run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	stop := c.fleet.Watch(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	for {
		c.follow() // it may have changed before
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// follow moves channels to the owners of their slots, and gives up the servers that serve none any more: none while
// slots have no owner, because the owner may be one of them.
func (c *Cluster) follow() {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.at))
	c.mu.Unlock()
	for _, channel := range all { // others use the servers meanwhile
		c.place(channel, false)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	view := c.fleet.View()
	for at, s := range c.servers {
		if view.Covered() && view.Primary(string(at)) == nil {
			delete(c.servers, at)
			time.AfterFunc(farewell, s.Close)
		}
	}
}

// Close implements Topology.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	all := slices.Collect(maps.Values(c.servers))
	clear(c.servers)
	c.mu.Unlock()
	for _, s := range all {
		s.Close()
	}
	c.runs.Wait()
}
