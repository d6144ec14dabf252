package upstream

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// An authDemand is what Redis has said last of connections without credentials. On a direct connection Redis decides
// once, when the client connects, whether it needs credentials. A shared connection that was accepted says nothing of a
// later client, and Redis announces no change. So Run asks every authPeriod, and at each (re)connect. The methods may
// be called from any goroutine.
type authDemand struct {
	shut atomic.Bool
	era  atomic.Uint64
}

// authPeriod is how late a change of requirepass, or of the default user, is noticed at most, if Redis answers at once.
const authPeriod = time.Second

// NeedsAuth reports whether Redis demanded credentials of a new connection when it was last asked.
func (d *authDemand) NeedsAuth() bool { return d.shut.Load() }

// Era is how often Redis was found to demand credentials after it had not. Clients without credentials that came in
// another era have other rights.
func (d *authDemand) Era() uint64 { return d.era.Load() }

// LookAtAuth finds out whether clients must authenticate. Lanes and pins without credentials that Redis has accepted
// serve no new client from then on. Without an answer the last one stands. One call at a time: those of Run, and one
// before Run.
func (u *Upstream) LookAtAuth(ctx context.Context) {
	needed, err := u.asker.NeedsAuth(ctx)
	if err != nil {
		return
	}
	begins := needed && !u.shut.Load()
	if begins {
		u.era.Add(1) // first: a client that is refused must not have the lock engine of those before it
	}
	u.shut.Store(needed)
	if begins {
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
