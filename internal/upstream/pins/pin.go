package pins

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Pin is a connection to Redis of a single session, while that session is in a state that cannot be shared. Between
// sessions it waits in the pool. It belongs to the session from Acquire to Release or Discard; only that session may
// use it.
type Pin struct {
	*stream.Stream // moves the bytes; its session appends to it, and then sends
	dial.Failure   // if it could not be connected

	pins  *Pins
	login bool          // it was made for a login; immutable
	stop  chan struct{} // closed by Discard
	once  sync.Once
	up    atomic.Bool // it has been connected

	anew   atomic.Bool // Ask.Anew of the latest request
	bare   atomic.Bool // see Bare; set before up
	number atomic.Uint64
	old    atomic.Bool // see AnswersRefusals
	nc     net.Conn    // set before up

	// Owned by the session; by the pool between sessions.
	target dial.Target
	name   string // the connection's in CLIENT LIST
	free   bool   // the connection's user may change that by CLIENT SETNAME, as far as is known

	finished bool // CloseWrite was called

	// Guarded by Pins.mu.
	pool  *pool  // the pool of the connection
	owner string // the account that has it, or had it last
	lent  bool   // a session has it
	dead  bool   // its connection has ended
	// No other session gets it: its server is gone, or it may have rights that a new connection would not have.
	leaves bool
	since  time.Time // when it became idle
}

// At is the server that the connection leads to.
func (p *Pin) At() topology.Node { return p.target.At }

// Identity of the connection. A session that changes it (AUTH, HELLO, SELECT) says so by Became.
func (p *Pin) Identity() dial.Identity { return p.target.ID }

// ID is the id that Redis gave the connection; 0: it is not connected yet, or Redis did not say.
func (p *Pin) ID() uint64 { return p.number.Load() }

// Greeted takes the answer to a HELLO on a connection that is Connected: the connection could not be asked for its id
// before it was authenticated.
func (p *Pin) Greeted(hello resp.Value) {
	p.pins.opts.Dialer.Connections().Greeted(p.nc, hello, false)
	p.know()
}

// know takes what the connection's answer to HELLO said.
func (p *Pin) know() {
	id, old := p.pins.opts.Dialer.Connections().Greeting(p.nc)
	p.number.Store(id)
	p.old.Store(old)
}

// AnswersRefusals reports whether the server answers each AUTH that it refuses. Valkey, and Redis from 7.2 on, do not
// answer one that comes while answers are still to be written, so never in a transaction.
func (p *Pin) AnswersRefusals() bool { return p.old.Load() }

// Connected reports whether the connection was ever established.
func (p *Pin) Connected() bool { return p.up.Load() }

// Became records that the session has moved the connection to another identity.
func (p *Pin) Became(id dial.Identity) {
	p.free = p.free && p.target.ID.User == id.User && p.target.ID.Password == id.Password
	p.target.ID = id
}

// Name is the client name that the connection has in Redis.
func (p *Pin) Name() string { return p.name }

// Named records the connection's name. byCommand says that CLIENT SETNAME has given it. Not every user may send that
// command: a connection that HELLO or another user has named may keep its name for ever.
func (p *Pin) Named(name string, byCommand bool) {
	p.name = name
	p.free = p.free || byCommand
}

// CloseWrite says that nothing more will be appended: when Redis has read everything, it sees the end of its client.
// Replies may still come.
func (p *Pin) CloseWrite() {
	p.finished = true
	p.Finish(p.shut)
}

// shut ends the direction to Redis at once. While a goroutine is being woken for it, Redis would take an element from a
// list for a client that has left.
func (p *Pin) shut() { netio.ShutWrite(p.nc) }

// Finished reports whether CloseWrite was called.
func (p *Pin) Finished() bool { return p.finished }

// Bare reports whether the connection is not the identity's, but one without credentials, in database 0 and RESP2,
// because Redis did not accept the identity. Only a request with Ask.Anew gets such a pin. It serves once: Release
// closes it.
func (p *Pin) Bare() bool { return p.bare.Load() }

// ReadFrames makes every frame an Observer.Push from now on, because replies cannot be counted. Nothing may be
// outstanding.
func (p *Pin) ReadFrames() { p.SetMode(stream.Framed) }

// ReadReplies returns to counting replies. Nothing may be outstanding.
func (p *Pin) ReadReplies() { p.SetMode(stream.Counted) }

// ReadVerdict leaves it to Redis how the connection is read after the next command. If the reply is an error, it is an
// Observer.Push of its kind and ReadFrames is in force. Otherwise the reply and all bytes behind it pass as with
// ReadRaw. Nothing may be outstanding.
func (p *Pin) ReadVerdict() { p.SetMode(stream.Verdict) }

// ReadRaw passes all bytes to the Observer until the connection ends. Nothing may be outstanding.
func (p *Pin) ReadRaw() { p.SetMode(stream.Raw) }

// Keep makes a pin for a login one for work, which its session keeps. false: there is no place for its owner.
func (p *Pin) Keep() bool { return p.pins.keep(p) }

// Release returns a clean connection to the pool: nothing outstanding, no state on it but its identity and name. A
// connection whose name cannot be removed is closed.
func (p *Pin) Release() {
	if p.finished || p.bare.Load() || p.name != "" && !p.free {
		p.Discard()
		return
	}
	p.Observe(nil)
	p.pins.put(p)
}

// Discard closes the connection. The receivers of outstanding requests are told that they are lost. The Observer is
// told nothing.
func (p *Pin) Discard() {
	p.Observe(nil)
	if p.up.Load() {
		p.shut()
	}
	p.once.Do(func() { close(p.stop) })
	p.pins.drop(p)
}

// abort ends the connection as if the server had.
func (p *Pin) abort() { p.once.Do(func() { close(p.stop) }) }

// isElsewhere reports whether the server has moved since the connection was made.
func (p *Pin) isElsewhere() bool {
	return p.up.Load() && p.pins.opts.Dialer.IsElsewhere(p.target.At, p.nc)
}

// run serves the pin's connection until it ends.
func (p *Pin) run() {
	dialer, own := p.pins.opts.Dialer, p.pins.opts.Own
	ctx, cancel := dial.UntilClosed(p.stop)
	nc, err := dialer.Open(ctx, p.target)
	failed := false
	for err != nil && ctx.Err() == nil && !dial.IsRefused(err) && !dial.IsLasting(err) && p.Waits() {
		failed = true
		nc, err = dialer.Open(ctx, p.target)
	}
	for err == nil && failed && ctx.Err() == nil && dialer.IsLoading(nc) && p.Waits() { // as Lane.awaitLoaded
		select {
		case <-time.After(dial.LoadingPause):
		case <-ctx.Done():
		}
	}
	if dial.IsRejected(err) && !own(p.target.ID) && p.anew.Load() {
		nc, err = dialer.Open(ctx, dial.Target{At: p.target.At, ID: dial.Identity{Proto: 2}})
		p.bare.Store(err == nil)
	}
	cancel()
	if err != nil {
		p.Tried(err, own(p.target.ID))
		p.pins.died(p)
		p.Refuse(err)
		return
	}
	if !p.login && dialer.Connections().Locked(nc) { // as Lane.Run
		dialer.HangUp(nc)
		p.Reject()
		p.pins.died(p)
		p.Refuse(stream.ErrDown)
		return
	}
	p.nc = nc
	p.know()
	p.up.Store(true)
	dialer.Serve(p.target.At, nc, p.Leave, p.abort)
	if sc, ok := nc.(syscall.Conn); ok {
		p.WriteDirectly(netio.New(sc))
	}
	err = stream.Serve(nc, p.Stream, p.stop, p.pins.turns)
	dialer.Connections().Closed(nc)
	p.pins.died(p)
	p.Refuse(err)
}
