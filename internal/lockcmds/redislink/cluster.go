package redislink

import (
	"context"
	"errors"
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
//	Node(channel).Subscribe ──► homes ──► Run ──► the subscriber of the owner; of the next one when the view changes
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
	wake     chan struct{} // size 1, never closed: todo is not empty, or the view has changed

	mu      sync.Mutex // guards the fields below
	servers map[topology.Node]*server
	wanted  map[string]bool
	todo    []string // channels that are wanted or unwanted since, or have lost their home
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
	return &Cluster{
		opts: opts, wake: make(chan struct{}, 1), servers: map[topology.Node]*server{}, wanted: map[string]bool{},
	}, nil
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
	s := c.servers[at]
	if s == nil && !c.closed {
		s = c.newServer(at)
		c.servers[at] = s
	}
	return s
}

// change notes that a channel is wanted, or not wanted any more.
func (c *Cluster) change(channel string, want bool) {
	c.mu.Lock()
	if want {
		c.wanted[channel] = true
	} else {
		delete(c.wanted, channel)
	}
	c.todo = append(c.todo, channel)
	c.mu.Unlock()
	c.stir()
}

func (c *Cluster) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// moved notes that a channel has no subscription at its home any more, unless Redis has refused it for good. When the
// view is fresh it gets one, there or elsewhere.
func (c *Cluster) moved(channel string, why Refusal) bool {
	if why != "" && !passes(why) {
		return false
	}
	c.opts.Fleet.Refresh(topology.Any, func() {
		c.mu.Lock()
		c.todo = append(c.todo, channel)
		c.mu.Unlock()
		c.stir()
	})
	return true
}

// Run implements Topology.
func (c *Cluster) Run(ctx context.Context) {
	homes := homes{of: c, at: map[string]topology.Node{}, running: map[*server]context.CancelFunc{}}
	defer homes.end()
	defer c.opts.Fleet.Watch(c.stir)()
	for ctx.Err() == nil {
		homes.settle(ctx, c.opts.Fleet.View())
		select {
		case <-c.wake:
		case <-ctx.Done():
		}
	}
}

// homes are the servers at which channels are subscribed: the owners of their slots. Run alone uses it.
type homes struct {
	of      *Cluster
	view    *topology.View // by which they were chosen
	at      map[string]topology.Node
	running map[*server]context.CancelFunc // the servers whose subscribers run
	wg      sync.WaitGroup
}

// settle subscribes the channels that need it, at the owners of their slots in the view.
func (h *homes) settle(ctx context.Context, v *topology.View) {
	c := h.of
	c.mu.Lock()
	todo := c.todo
	c.todo = nil
	slices.Sort(todo)
	todo = slices.Compact(todo)
	wanted := make([]bool, len(todo))
	for i, channel := range todo {
		wanted[i] = c.wanted[channel]
	}
	c.mu.Unlock()
	for i, channel := range todo {
		if wanted[i] {
			h.subscribe(ctx, channel, v, true)
		} else if at, ok := h.at[channel]; ok {
			delete(h.at, channel)
			c.leaveTo(at, channel)
		}
	}
	if h.view == v {
		return
	}
	h.view = v
	for channel := range h.at {
		h.subscribe(ctx, channel, v, false)
	}
	for _, s := range c.gone(v) {
		if stop := h.running[s]; stop != nil {
			stop()
			delete(h.running, s)
		}
		s.leave()
	}
}

// subscribe subscribes a channel at its owner, if it is not, or anew. If no server owns the slot, it stays where it
// was.
func (h *homes) subscribe(ctx context.Context, channel string, v *topology.View, anew bool) {
	owner := v.Owner(hashslot.Of([]byte(channel)))
	old, had := h.at[channel]
	if owner == nil {
		h.at[channel] = old // the next view may know one
		return
	}
	at := topology.Node(owner.ID)
	if had && old == at && !anew {
		return
	}
	s := h.of.server(at)
	if s == nil {
		return
	}
	if had && old != at {
		h.of.leaveTo(old, channel)
	}
	h.at[channel] = at
	s.Subscribe(channel)
	if h.running[s] == nil {
		life, stop := context.WithCancel(ctx)
		h.running[s] = stop
		h.wg.Go(func() { s.Run(life) })
	}
}

// leaveTo gives up a channel at a server.
func (c *Cluster) leaveTo(at topology.Node, channel string) {
	c.mu.Lock()
	s := c.servers[at]
	c.mu.Unlock()
	if s != nil {
		s.Unsubscribe(channel)
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
			all = append(all, s)
		}
	}
	return all
}

func (h *homes) end() {
	for _, stop := range h.running {
		stop()
	}
	h.wg.Wait()
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
