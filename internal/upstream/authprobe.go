package upstream

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// authProbeOptions name the server that is asked. All but Patience are required.
type authProbeOptions struct {
	Asker *asker
	Spawn func(func())    // runs a goroutine and waits for its end
	Stop  <-chan struct{} // closed when no answer is needed any more

	// Patience is the wait for one server's answer before another one is asked. 0: there is one server.
	Patience time.Duration

	// Shut is called when Redis is found to want credentials after it did not: connections that were accepted serve no
	// new client.
	Shut func()
}

// An authProbe is that of one Redis. NeedsAuth, Knock and saw may be called from any goroutine, the others belong to
// the goroutine that asks.
//
// It finds out whether Redis accepts connections without credentials. On a direct connection Redis decides that when
// the client connects, and it announces no change. A shared connection that was accepted says nothing about a later
// client, so Redis is asked for each client. Clients that come while one question is on its way share the next one.
//
// RESET brings a connection back to the state of a new one, so one connection serves for all questions. One goroutine
// at most asks.
type authProbe struct {
	opts authProbeOptions // immutable
	shut atomic.Bool      // when Redis was last asked

	mu    sync.Mutex
	queue []func(era uint64) // the callers since the latest question
	busy  bool               // a goroutine asks
	era   uint64             // the number of times that Redis was found to want credentials after it had not

	nc net.Conn // owned by the goroutine that has set busy; nil: none
}

// newAuthProbe returns a probe that expects no credentials as far as is known.
func newAuthProbe(opts authProbeOptions) *authProbe { return &authProbe{opts: opts} }

// NeedsAuth reports whether Redis demanded credentials of new connections when it was last asked: at every (re)connect,
// at every authPeriod, and for each client that comes.
func (d *authProbe) NeedsAuth() bool { return d.shut.Load() }

// authProbeLimit bounds one question. After that the last known answer stands.
const authProbeLimit = 3 * time.Second

// Knock finds out whether Redis now serves a new connection without credentials. It calls told from another goroutine
// when lanes and pins without credentials have the same rights. Clients without credentials to which another era was
// told have other rights.
func (d *authProbe) Knock(told func(era uint64)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, told)
	if d.busy {
		return
	}
	select {
	case <-d.opts.Stop:
	default:
		d.busy = true
		d.opts.Spawn(d.answer)
	}
}

// answer asks as long as there are calls of Knock to answer.
func (d *authProbe) answer() {
	ctx, cancel := dial.UntilClosed(d.opts.Stop)
	defer cancel()
	for {
		d.mu.Lock()
		queue := d.queue
		d.queue = nil
		d.busy = len(queue) > 0
		d.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		shut, err := d.ask(ctx)
		if err == nil {
			d.saw(shut)
		}
		d.mu.Lock()
		era := d.era
		d.mu.Unlock()
		for _, told := range queue {
			told(era)
		}
	}
}

var (
	resetPing = append(resp.AppendCommand(nil, "RESET"), resp.AppendCommand(nil, "PING")...)
	wasReset  = []byte("+RESET")
)

// maxServers bounds the servers that one question is put to.
const maxServers = 4

// ask reports whether Redis demands credentials of a new connection. A server that has been stopped keeps its
// connections and does not answer, so another one is asked then.
func (d *authProbe) ask(ctx context.Context) (shut bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, authProbeLimit)
	defer cancel()
	for range maxServers {
		if shut, err = d.askOne(ctx); err == nil || d.opts.Patience == 0 || dial.IsRefused(err) || ctx.Err() != nil {
			break
		}
	}
	return shut, err
}

// askOne asks the server that was asked before, and if it does not answer the next one.
func (d *authProbe) askOne(ctx context.Context) (shut bool, err error) {
	if d.opts.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.opts.Patience)
		defer cancel()
	}
	if d.nc != nil {
		if shut, err = askReset(ctx, d.nc); err == nil {
			return shut, nil
		}
		d.opts.Asker.Dialer.HangUp(d.nc)
		d.nc = nil
	}
	nc, err := d.opts.Asker.Dialer.Dial(ctx, dial.Target{At: d.opts.Asker.Server, ID: dial.Identity{Proto: 2}})
	if err != nil {
		return false, err
	}
	if shut, err = askReset(ctx, nc); err == nil {
		d.nc = nc
		return shut, nil
	}
	d.opts.Asker.Dialer.HangUp(nc)
	return d.opts.Asker.NeedsAuth(ctx) // a Redis without RESET
}

// askReset asks on a connection that has been used before.
func askReset(ctx context.Context, nc net.Conn) (shut bool, err error) {
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := nc.Write(resetPing); err != nil {
		return false, err
	}
	rd := dial.NewReader(nc)
	b, err := rd.Raw()
	if err != nil {
		return false, err
	}
	if !bytes.HasPrefix(b, wasReset) {
		return false, &dial.RefusedError{Reply: string(bytes.TrimSpace(b))}
	}
	b, err = rd.Raw()
	return isNoAuth(b), err
}

// saw notes what Redis does with connections without credentials.
func (d *authProbe) saw(shut bool) {
	d.mu.Lock()
	closing := !d.shut.Swap(shut) && shut
	if closing {
		d.era++
	}
	d.mu.Unlock()
	if closing {
		d.opts.Shut()
	}
}

// close closes the connection for questions. It is called when no goroutine asks any more.
func (d *authProbe) close() {
	if d.nc != nil {
		d.opts.Asker.Dialer.HangUp(d.nc)
		d.nc = nil
	}
}
