package redislink

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"

	"go.uber.org/zap"

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

// ClusterOptions name the servers of a Cluster, and the user that it connects as. Fleet is required.
type ClusterOptions struct {
	Fleet          Fleet
	User, Password string
	Logger         *zap.Logger // nil: silent
}

// Cluster is the Topology of a Redis Cluster. It has a Node for each hash slot, so renewals of one batch are of one
// slot, and a Client for each server that it needs.
type Cluster struct {
	opts     ClusterOptions
	listener Listener
	runs     sync.WaitGroup // the goroutines of subscribers and of follow

	mu      sync.Mutex // guards the fields below
	servers map[topology.Node]*server
	at      map[string]topology.Node // where the wanted channels are subscribed; Any: no server is known
	ended   bool                     // Run has ended
	closed  bool
}

// NewCluster checks the options. It starts nothing.
func NewCluster(opts ClusterOptions) (*Cluster, error) {
	if opts.Fleet == nil {
		return nil, errors.New("redislink: no servers")
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	return &Cluster{opts: opts, servers: map[topology.Node]*server{}, at: map[string]topology.Node{}}, nil
}

// Servers implements Topology.
func (c *Cluster) Servers() script.Servers {
	return script.Servers{Slots: true, Sharded: c.opts.Fleet.Sharded()}
}

// Node implements Topology.
func (c *Cluster) Node(key string) Node { return slotNode{c, hashslot.Of([]byte(key))} }

// Listen implements Topology.
func (c *Cluster) Listen(l Listener) { c.listener = l }

// server returns the server of that name, if there is one; nil: this Cluster is closed.
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

// Why a channel is placed.
type placing uint8

const (
	wanted   placing = iota // it is wanted from now on
	lost                    // its subscription has ended
	followed                // the view has changed
)

// place subscribes a channel at the owner of its slot by the present view. If no server owns the slot, it stays where it
// was.
func (c *Cluster) place(channel string, why placing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.at[channel]
	if !known && why != wanted {
		return // it has been given up
	}
	at := old
	if owner := c.opts.Fleet.View().Owner(hashslot.Of([]byte(channel))); owner != nil {
		at = topology.Node(owner.ID)
	}
	if c.at[channel] = at; at == topology.Any || at == old && why == followed {
		return
	}
	if before := c.servers[old]; before != nil && at != old {
		before.Unsubscribe(channel)
	}
	s := c.serverLocked(at)
	if s == nil {
		return
	}
	s.Subscribe(channel)
	if s.stop == nil && !c.ended {
		var life context.Context
		life, s.stop = context.WithCancel(s.life)
		c.runs.Go(func() { s.Run(life) })
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
	if why != "" && !passes(why) {
		return false
	}
	c.opts.Fleet.Refresh(topology.Any, func() { c.place(channel, lost) })
	return true
}

// Run implements Topology.
func (c *Cluster) Run(ctx context.Context) {
	stop := c.opts.Fleet.Watch(c.changed)
	c.changed() // it may have been before
	<-ctx.Done()
	stop()
	c.mu.Lock()
	c.ended = true
	for _, s := range c.servers {
		s.unhear()
	}
	c.mu.Unlock()
	c.runs.Wait()
}

// changed has the channels follow a change of the view.
func (c *Cluster) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.runs.Go(c.follow)
	}
}

// follow moves channels to the owners of their slots, and gives up the servers that serve none any more.
func (c *Cluster) follow() {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.at))
	c.mu.Unlock()
	for _, channel := range all { // others use the servers meanwhile
		c.place(channel, followed)
	}
	for _, s := range c.gone(c.opts.Fleet.View()) {
		s.leave()
	}
}

// gone takes out the servers that serve no slots any more; none while slots have no owner, because the owner may be one
// of them. A channel that stays there would not be subscribed anew.
func (c *Cluster) gone(v *topology.View) (all []*server) {
	if !v.Covered() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, s := range c.servers {
		if v.Primary(string(at)) == nil {
			delete(c.servers, at)
			s.unhear()
			all = append(all, s)
		}
	}
	return all
}

// Close implements Topology.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for at, s := range c.servers {
		delete(c.servers, at)
		s.Close()
	}
}
