package upstream

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

// An authDemand is what Redis has said last of connections without credentials. On a direct connection Redis decides
// once, when the client connects, whether it needs credentials. A shared connection that was accepted says nothing of a
// later client, and Redis announces no change. So watchAuth asks every authPeriod. Two answers are not enough: Redis
// may have been opened and locked again between them. So a connection that was accepted is noted, and serves no client
// that comes after the next demand. The methods may be called from any goroutine.
type authDemand struct {
	mu       sync.Mutex
	shut     bool
	accepted bool // Redis has accepted a connection since the last demand
	era      uint64
}

// authPeriod is how late a change of requirepass, or of the default user, is noticed at most, if Redis answers at once.
const authPeriod = time.Second

// NeedsAuth reports whether Redis demanded credentials of a new connection when it was last asked.
func (d *authDemand) NeedsAuth() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shut
}

// Era is how often Redis was found to demand credentials after it had accepted a connection without. Clients without
// credentials that came in another era have other rights. A caller of NeedsAuth calls it afterwards: a client that is
// refused must not have the lock engine of the clients before it.
func (d *authDemand) Era() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.era
}

// sawAccepted notes that Redis has accepted a connection without credentials.
func (d *authDemand) sawAccepted() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.accepted = true
}

// learn notes an answer. It reports whether connections without credentials have other rights from now on than those
// that exist: Redis has accepted some of these, or refused them. Only an answer begins an era, because clients cause
// connections, and the servers of a cluster may differ.
func (d *authDemand) learn(shut bool) (differ bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	begins, ends := shut && d.accepted, !shut && d.shut
	if begins {
		d.era++
	}
	d.shut, d.accepted = shut, !shut
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
		case <-u.contact:
		}
	}
}

// LookAtAuth finds out whether clients must authenticate. Lanes and pins without credentials serve no new client if it
// would have other rights. Without an answer the last one stands. It excludes Run.
func (u *Upstream) LookAtAuth(ctx context.Context) {
	needed, err := u.asker.NeedsAuth(ctx)
	if err != nil {
		return
	}
	if u.learn(needed) {
		u.Lanes.DropBare()
		u.Pins.DropBare()
	}
	now := closed
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
