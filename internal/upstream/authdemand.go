package upstream

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// An authDemand is what Redis has said last of connections without credentials. Clients that have not logged in share
// such connections as long as Redis serves them. When it begins to demand a login, these connections end, and with them
// their clients. From then on the proxy refuses the commands of such clients itself, each after a question to Redis
// that was asked since it came.
//
// Redis announces no change. So watchAuth asks on a new connection every authPeriod; the servers of a cluster take
// turns. A new lane or pin that is refused says the same. The methods may be called from any goroutine.
type authDemand struct {
	mu      sync.Mutex
	servers map[Node]bool // those of a cluster, else Any: a login is demanded; missing: the server has not been asked
	turn    int
	// Clients may have been served since a demand was noted last, though of the servers that were asked some have left.
	admitted bool
	waiting  []func(needed bool, err error) // for the answer to a question that has not begun
	asking   bool                           // answerAll runs

	witnesses map[Node]net.Conn // see witness; owned by answerAll
}

// authPeriod is how late a new demand is noticed at most, if Redis answers at once. In a cluster it is that time for
// each server.
const authPeriod = time.Second

// NeedsAuth reports whether Redis, or a server of the cluster, demanded a login of a new connection when it was last
// asked.
func (d *authDemand) NeedsAuth() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.neededLocked()
}

func (d *authDemand) neededLocked() bool {
	for _, shut := range d.servers {
		if shut {
			return true
		}
	}
	return false
}

// Admits reports whether clients without a login are served: Redis has been asked, and demands none.
func (d *authDemand) Admits() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.admitsLocked()
}

func (d *authDemand) admitsLocked() bool { return len(d.servers) > 0 && !d.neededLocked() }

// next is the server of a cluster that is asked next. Any: there is none.
func (d *authDemand) next(servers []topology.ClusterNode) Node {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(servers) == 0 {
		return topology.Any
	}
	maps.DeleteFunc(d.servers, func(at Node, _ bool) bool { // it has left the cluster
		return !slices.ContainsFunc(servers, func(n topology.ClusterNode) bool { return Node(n.ID) == at })
	})
	d.turn++
	return Node(servers[d.turn%len(servers)].ID)
}

// learn notes what a server has said. It reports whether clients without a login are not served any more.
func (d *authDemand) learn(at Node, shut bool) (begins bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	begins = shut && d.admitted
	d.servers[at] = shut
	d.admitted = d.admitted && !shut || d.admitsLocked()
	return begins
}

// shut are the servers that demand a login, as far as is known.
func (d *authDemand) shut() (list []Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at, shut := range d.servers {
		if shut {
			list = append(list, at)
		}
	}
	return list
}

// AskAuth has then called from another goroutine with the answer of Redis whether it demands a login, to a question
// that begins after this call. One question serves all that wait.
func (u *Upstream) AskAuth(then func(needed bool, err error)) {
	u.authDemand.mu.Lock()
	defer u.authDemand.mu.Unlock()
	u.waiting = append(u.waiting, then)
	if !u.asking {
		u.asking = true
		u.wg.Go(u.answerAll)
	}
}

// answerAll asks Redis for those that wait, until none is left.
func (u *Upstream) answerAll() {
	ctx, cancel := dial.UntilClosed(u.over)
	defer cancel()
	for {
		u.authDemand.mu.Lock()
		list := u.waiting
		u.waiting, u.asking = nil, len(list) > 0
		u.authDemand.mu.Unlock()
		if len(list) == 0 {
			return
		}
		needed, err := u.askAll(ctx)
		for _, then := range list {
			then(needed, err)
		}
	}
}

// askAll asks the servers that demand a login, or one if none has been asked, until one demands it.
func (u *Upstream) askAll(ctx context.Context) (needed bool, err error) {
	list := u.shut()
	if len(list) == 0 && !u.Admits() {
		list = []Node{u.nextServer()}
	}
	for _, at := range list {
		if needed = u.witness(at); !needed {
			if needed, err = u.hear(ctx, at); err != nil {
				return false, err
			}
		}
		if needed {
			return true, nil
		}
	}
	return u.NeedsAuth(), nil
}

// witness asks a server on a connection that the server has refused: it is refused for as long as a login is demanded.
// It costs less than a new connection, which a client could cause at will. false: there is none that is refused.
func (u *Upstream) witness(at Node) bool {
	nc := u.witnesses[at]
	if nc == nil {
		return false
	}
	reply, err := u.dialer.Ask(nc, "PING")
	if err == nil && isNoAuth(reply) {
		return true
	}
	delete(u.witnesses, at)
	u.dialer.HangUp(nc)
	return false
}

// hear asks a server on a new connection. One that is refused becomes the witness.
func (u *Upstream) hear(ctx context.Context, at Node) (needed bool, err error) {
	nc, err := u.dialer.Dial(ctx, dial.Target{At: at, ID: Identity{Proto: 2}})
	if err != nil {
		return false, err
	}
	needed = u.dialer.Connections().Locked(nc)
	u.told(at, needed)
	if needed {
		u.witnesses[at] = nc
	} else {
		u.dialer.HangUp(nc)
	}
	return needed, nil
}

// told takes what a server has said of a connection without credentials. Requires no locks.
func (u *Upstream) told(at Node, shut bool) {
	if !u.learn(at, shut) {
		return
	}
	u.Lanes.DropBare()
	u.Pins.DropBare()
	if u.opts.Demanded != nil {
		u.wg.Go(u.opts.Demanded)
	}
}

// nextServer is the server that is asked next.
func (u *Upstream) nextServer() Node {
	if u.cluster == nil {
		return topology.Any
	}
	return u.next(u.View().Nodes())
}

// watchAuth asks until ctx ends. It has a goroutine of its own, because Run may wait for a Redis that refuses the
// proxy.
func (u *Upstream) watchAuth(ctx context.Context) {
	ticks := time.NewTicker(authPeriod)
	defer ticks.Stop()
	for ctx.Err() == nil {
		if err := u.LookAtAuth(ctx); ctx.Err() == nil {
			u.noteContact(err)
		}
		select {
		case <-ctx.Done():
		case <-ticks.C:
		}
	}
}

// noteContact notes whether Redis could be reached: while no client is logged in, there may be no lane that says so.
func (u *Upstream) noteContact(err error) {
	switch _, before := u.Outage(); {
	case err != nil:
		u.laneFailed(dial.Target{}, err, false)
	case before != nil && !dial.IsRefused(before):
		u.contacts.Note(nil)
	}
}

// LookAtAuth finds out whether clients must log in. Without an answer the last one stands. It excludes Run.
func (u *Upstream) LookAtAuth(ctx context.Context) error {
	at := u.nextServer()
	shut, err := u.asker.NeedsAuth(ctx, at)
	if err != nil {
		return err
	}
	u.told(at, shut)
	needed, now := u.NeedsAuth(), closed
	switch {
	case needed && u.opts.Password == "":
		now = locked
	case !needed || u.opts.Lent:
		now = open
	}
	if now == u.access {
		return nil
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
	return nil
}

// access says who may use Redis through the proxy.
type access uint8

const (
	unknown access = iota
	open           // all clients, without credentials
	closed         // clients with credentials
	locked         // the same, and the proxy has none of its own
)
