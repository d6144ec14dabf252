package upstream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// An authDemand is what Redis has said last of connections without credentials. On a direct connection Redis decides
// once, when the client connects, whether it needs credentials. A shared connection says nothing of a later client, and
// Redis announces no change. So watchAuth asks every authPeriod; the servers of a cluster take turns. Two answers are
// not enough: between them Redis may have been locked and opened again, or the reverse. So the kinds of connections
// that exist are noted. One that was accepted serves no client that comes after the next demand, and one that was
// refused none that comes after its end. The methods may be called from any goroutine.
type authDemand struct {
	mu      sync.Mutex
	servers map[Node]serverDemand // those of a cluster, else Any
	turn    int
	era     uint64
}

// A serverDemand is what one server has said last, and the kinds of connections to it that exist.
type serverDemand struct {
	shut     bool
	accepted bool // it has accepted a connection since its last demand
	refused  bool // it has refused a connection since it was open last
}

// authPeriod is how late a change of requirepass, or of the default user, is noticed at most, if Redis answers at once.
// In a cluster it is that time for each server.
const authPeriod = time.Second

// NeedsAuth reports whether Redis, or a server of the cluster, demanded credentials of a new connection when it was
// last asked.
func (d *authDemand) NeedsAuth() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, of := range d.servers {
		if of.shut {
			return true
		}
	}
	return false
}

// Era is how often Redis was found to demand credentials after it had accepted a connection without. Clients without
// credentials that came in another era have other rights. A caller of NeedsAuth calls it afterwards: a client that is
// refused must not have the lock engine of the clients before it.
func (d *authDemand) Era() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.era
}

// saw notes a new connection without credentials.
func (d *authDemand) saw(at Node, locked bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.servers[at]
	of.accepted, of.refused = of.accepted || !locked, of.refused || locked
	d.servers[at] = of
}

// next is the server of a cluster that is asked next. Any: there is none.
func (d *authDemand) next(servers []topology.ClusterNode) Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(servers) == 0 {
		return topology.Any
	}
	maps.DeleteFunc(d.servers, func(at Node, _ serverDemand) bool { // it has left the cluster
		return !slices.ContainsFunc(servers, func(n topology.ClusterNode) bool { return Node(n.ID) == at })
	})
	d.turn++
	return Node(servers[d.turn%len(servers)].ID)
}

// learn notes an answer. It reports whether connections without credentials have other rights from now on than those
// that exist: the server has accepted some of these, or refused them. Only an answer begins an era, because clients
// cause connections.
func (d *authDemand) learn(at Node, shut bool) (differ bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.servers[at]
	begins, ends := shut && of.accepted, !shut && of.refused
	if begins {
		d.era++
	}
	d.servers[at] = serverDemand{shut: shut, accepted: !shut, refused: shut}
	return begins || ends
}

// watchAuth asks until ctx ends. It has a goroutine of its own, because Run may wait for a Redis that refuses the
// proxy.
func (u *Upstream) watchAuth(ctx context.Context) {
	ticks := time.NewTicker(authPeriod)
	defer ticks.Stop()
	for ctx.Err() == nil {
		u.LookAtAuth(ctx)
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

// LookAtAuth finds out whether clients must authenticate. Lanes and pins without credentials serve no new client if it
// would have other rights. Without an answer the last one stands. It excludes Run.
func (u *Upstream) LookAtAuth(ctx context.Context) {
	var servers []topology.ClusterNode
	if u.cluster != nil {
		servers = u.View().Nodes()
	}
	at := u.next(servers)
	shut, err := u.asker.NeedsAuth(ctx, at)
	if err != nil {
		return
	}
	if u.learn(at, shut) {
		u.Lanes.DropBare()
		u.Pins.DropBare()
	}
	needed, now := u.NeedsAuth(), closed
	switch {
	case needed && u.opts.Password == "":
		now = locked
	case !needed || u.opts.Lent:
		now = open
	}
	if now == u.access {
		return
	}
	switch u.access = now; {
	case now == locked:
		u.opts.Logger.Warn("redis asks for a password (NOAUTH), and upstream.password is not set: " +
			"clients need credentials of their own, and the proxy does not know the commands and settings of redis")
	case now == open && len(u.opts.Exposed) > 0:
		u.opts.Logger.Warn("the network can use redis without a password: "+
			"listen at a loopback address, or give redis a password, or ask clients for certificates",
			zap.Strings("listen", u.opts.Exposed))
	}
}

// access says who may use Redis through the proxy.
type access uint8

const (
	unknown access = iota
	open           // all clients, without credentials
	closed         // clients with credentials
	locked         // the same, and the proxy has none of its own
)
