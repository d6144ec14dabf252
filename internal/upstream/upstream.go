package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/logging"
	"lockproxy/internal/upstream/address"
	"lockproxy/internal/upstream/admission"
	"lockproxy/internal/upstream/census"
	"lockproxy/internal/upstream/commands"
	"lockproxy/internal/upstream/dial"
	"lockproxy/internal/upstream/door"
	"lockproxy/internal/upstream/outage"
	"lockproxy/internal/upstream/pins"
	"lockproxy/internal/upstream/questions"
	"lockproxy/internal/upstream/refresh"
	"lockproxy/internal/upstream/topology"
)

// Options configure an Upstream. Zero values pick the defaults.
type Options struct {
	// Addr is Redis's address: host:port, or unix:/path. Required.
	Addr string

	// User and Password are the proxy's own credentials, used for its own questions (COMMAND) and, where the
	// configuration lends them to clients, for theirs. A password without a user is the default user's.
	User, Password string

	// TLS, if set, makes every connection TLS. It is called for each connection, so that certificates can change. The caller must
	// not change the config that it has returned. A config without ServerName expects the host of Addr.
	TLS func() *tls.Config

	// DialTimeout bounds connecting and the handshake together. 0: 3 s.
	DialTimeout time.Duration

	// KeepAlive is the idle time before TCP keepalive probes. 0: 30 s.
	KeepAlive time.Duration

	// UserTimeout bounds the time for which written bytes may stay unacknowledged (Linux). 0: 20 s, negative: the system's.
	UserTimeout time.Duration

	// authPeriod is the period of the question whether clients must authenticate, which may change while Redis runs. 0: 5 s. Tests
	// shorten it.
	authPeriod time.Duration

	// MaxPins bounds the pins in use. 0: 1000.
	MaxPins int

	// MaxPinsPerAddress bounds the pins of the clients of one address. 0: three quarters of MaxPins.
	MaxPinsPerAddress int

	// MaxLogins bounds the connections on which Redis judges identity changes. 0: 16.
	MaxLogins int

	// LoginWait is the longest wait of a session for one of them. 0: 10 s.
	LoginWait time.Duration

	// MaxLanes bounds the connections that sessions share: one for each identity in use and each Driver. 0: 256. The clients
	// of one address open three quarters of them at most.
	MaxLanes int

	// PinWait is the longest wait of a session for a pin. 0: 1 s.
	PinWait time.Duration

	Logger *zap.Logger // nil: no log
}

// Upstream is one Redis, with all connections to it.
type Upstream struct {
	opts    Options            // immutable after New
	cluster *topology.Cluster  // nil: one server
	views   *refresh.Refresher // of the cluster; nil: one server
	dialer  *dial.Dialer
	asker   *questions.Asker
	pins    *pins.Pins
	table   atomic.Pointer[commands.Table]
	refresh chan struct{} // size 1, never closed: the command table may have changed
	tight   atomic.Bool   // see Tight
	wg      sync.WaitGroup
	door    *door.Door
	over    chan struct{} // closed by close
	aside   atomic.Int64  // lanes set aside since the start

	proofs
	repeats *logging.Repeats

	mu     sync.Mutex
	lanes  lanes
	closed bool
	ready  bool  // the last contact with Redis was successful
	cause  error // why not
	outage outage.Outage
}

// New checks opts. Nothing is connected before a lane or pin is asked for.
func New(opts Options) (*Upstream, error) {
	addr, err := address.Parse(opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	servers, nodes, err := topologyOf(addr)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	setDefault(&opts.DialTimeout, 3*time.Second)
	setDefault(&opts.KeepAlive, 30*time.Second)
	setDefault(&opts.UserTimeout, 20*time.Second)
	setDefault(&opts.PinWait, time.Second)
	setDefault(&opts.LoginWait, 10*time.Second)
	setDefault(&opts.MaxPins, 1000)
	setDefault(&opts.MaxPinsPerAddress, admission.Share(opts.MaxPins))
	setDefault(&opts.MaxLogins, 16)
	setDefault(&opts.MaxLanes, 256)
	setDefault(&opts.authPeriod, 5*time.Second)
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	u := &Upstream{
		opts: opts, cluster: nodes, refresh: make(chan struct{}, 1), lanes: newLanes(opts.MaxLanes), over: make(chan struct{}),
		repeats: logging.NewRepeats(opts.Logger, entriesMost, entriesPeriod),
	}
	u.outage.Cause = dial.Cause
	u.dialer = dial.New(dial.Options{
		Resolver: servers, TLS: opts.TLS, Timeout: opts.DialTimeout, KeepAlive: opts.KeepAlive, UserTimeout: opts.UserTimeout,
		Spawn: u.wg.Go, Stop: u.over,
	})
	u.asker = &questions.Asker{Dialer: u.dialer, Server: topology.Any, Own: u.Own(), Logger: opts.Logger}
	u.pins = pins.New(pins.Options{
		Dialer: u.dialer, Own: u.own, Spawn: u.wg.Go, Max: opts.MaxPins, MaxPerOwner: opts.MaxPinsPerAddress,
		Wait: opts.PinWait, MaxLogins: opts.MaxLogins, LoginWait: opts.LoginWait,
	})
	u.door = door.New(door.Options{Dialer: u.dialer, Asker: u.asker, Spawn: u.wg.Go, Stop: u.over, Shut: func() {
		u.retireOpen()
		u.pins.DropBare()
	}})
	if nodes != nil {
		u.views = refresh.New(refresh.Options{Dialer: u.dialer, Cluster: nodes, Own: u.Own(), Logger: opts.Logger, Changed: u.viewChanged, Outcome: u.contact})
	}
	u.table.Store(commands.BuiltIn())
	return u, nil
}

// topologyOf returns the servers at an address; nodes is nil unless they are a cluster.
func topologyOf(a address.Address) (servers dial.Resolver, nodes *topology.Cluster, err error) {
	if a.Kind == address.Cluster {
		nodes, err = topology.NewCluster(a)
		return nodes, nodes, err
	}
	servers, err = topology.NewSingle(a)
	return servers, nil, err
}

// Entries of one kind that the log has in a period; the others become a summary.
const (
	entriesMost   = 5
	entriesPeriod = 10 * time.Second
)

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Addr is Redis's address for people.
func (u *Upstream) Addr() string { return u.opts.Addr }

// Connect opens a bare connection for a client library that does its own handshake, and that serves any key.
func (u *Upstream) Connect(ctx context.Context) (net.Conn, error) {
	return u.dialer.Connect(ctx, topology.Any)
}

// Own is the identity of the proxy's own credentials.
func (u *Upstream) Own() Identity {
	return Identity{User: u.opts.User, Password: u.opts.Password, Proto: 2}
}

// own reports whether an identity has the proxy's own credentials. The operator must correct these.
func (u *Upstream) own(id Identity) bool {
	return u.opts.Password != "" && id.User == u.opts.User && id.Password == u.opts.Password
}

// Idle lanes and pins are kept for a while: clients that come and go by the second should find them.
const (
	idleFor    = time.Minute
	trimPeriod = 15 * time.Second
)

// Run keeps the command table fresh and closes unused connections, until ctx ends; then it closes everything. Sessions have
// ended by then.
func (u *Upstream) Run(ctx context.Context) error {
	defer u.close()
	if u.views != nil {
		u.wg.Go(func() { u.views.Run(ctx) })
	}
	ticks := time.NewTicker(trimPeriod)
	defer ticks.Stop()
	looks := time.NewTicker(u.opts.authPeriod)
	defer looks.Stop()
	u.askRefresh()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.refresh:
			u.refreshTable(ctx)
		case now := <-ticks.C:
			u.trim(now.Add(-idleFor))
			u.dialer.Census().Trim(now.Add(-census.ClosedFor))
		case <-looks.C:
			u.lookAtAuth(ctx)
			u.lookAtLimits(ctx)
		}
	}
}

func (u *Upstream) askRefresh() {
	select {
	case u.refresh <- struct{}{}:
	default:
	}
}

// refreshTable asks Redis for its commands, until it answers or cannot.
func (u *Upstream) refreshTable(ctx context.Context) {
	var wait dial.Backoff
	contact := make(chan struct{}, 1)
	defer u.dialer.Forget(topology.Any, contact)
	for {
		table, err := u.asker.Commands(ctx)
		if err == nil {
			u.table.Store(table)
			u.inspect(ctx)
			u.opts.Logger.Info("connected to upstream", zap.String("addr", u.opts.Addr), zap.Int("commands", table.Len()))
			return
		}
		if ctx.Err() != nil {
			return
		}
		if dial.IsRefused(err) && !(dial.IsRejected(err) && u.own(u.Own())) {
			u.inspect(ctx)
			u.opts.Logger.Info("COMMAND is not available on upstream, using the built-in command table", zap.Error(err))
			return
		}
		delay, _ := wait.Next()
		u.contact(err)
		u.dialer.Await(topology.Any, contact, err)
		select {
		case <-ctx.Done():
			return
		case <-contact:
		case <-time.After(delay):
		}
	}
}

// inspect reads the settings of Redis that matter to the proxy.
func (u *Upstream) inspect(ctx context.Context) {
	u.lookAtAuth(ctx)
	u.asker.WarnOfEviction(ctx)
	u.lookAtLimits(ctx)
	u.contact(nil)
}

// Ready reports whether Redis was reachable at the last contact, and if not why.
func (u *Upstream) Ready() (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ready, u.cause
}

// contact notes the outcome of a contact with Redis, and logs what it means to the operator. Requires no locks.
func (u *Upstream) contact(err error) {
	u.mu.Lock()
	u.ready, u.cause = err == nil, err
	event := u.outage.Note(time.Now(), err)
	u.mu.Unlock()
	u.report(event, err)
}

// report logs the begin, the end and each further minute of an outage.
func (u *Upstream) report(e outage.Event, err error) {
	addr := zap.String("addr", u.opts.Addr)
	switch e.Kind {
	case outage.Nothing:
	case outage.Over:
		u.repeats.Write(zap.InfoLevel, "upstream is available again", "", addr, logging.Seconds("unavailable", e.Lasted), zap.Int("failures", e.Failures))
	case outage.Began, outage.GoesOn:
		level := zap.ErrorLevel // the configuration is wrong, and time does not cure it
		if !dial.IsRejected(err) && !errors.Is(err, dial.ErrNotRedis) {
			level = zap.WarnLevel
		}
		u.repeats.Write(level, e.Cause, "", addr, zap.Error(err), logging.Seconds("unavailable", e.Lasted), zap.Int("failures", e.Failures))
	}
}

// NeedsAuth reports whether Redis refused to serve a connection without credentials when the proxy last looked: at every
// (re)connect and every authPeriod.
func (u *Upstream) NeedsAuth() bool { return u.door.Shut() }

// Knock finds out whether Redis now serves a new connection without credentials. It calls told from another goroutine when lanes and pins
// without credentials have the same rights. Clients without credentials to which another era was told have other rights.
func (u *Upstream) Knock(told func(era uint64)) { u.door.Knock(told) }

// lookAtAuth finds out whether clients must authenticate. Redis does not announce a change.
func (u *Upstream) lookAtAuth(ctx context.Context) {
	needed, err := u.asker.NeedsAuth(ctx)
	if err != nil {
		return // unchanged
	}
	u.door.Saw(needed)
}

// Probe asks Redis, on a connection of its own, whether it answers and takes writes. An error for missing rights or missing credentials
// of the proxy's own user counts as a good answer.
func (u *Upstream) Probe(ctx context.Context) error { return u.asker.Probe(ctx) }

// lookAtLimits finds out whether Redis closes connections that have much to send.
func (u *Upstream) lookAtLimits(ctx context.Context) {
	if tight, known := u.asker.Tight(ctx); known {
		u.tight.Store(tight)
	}
}

// Tight reports whether Redis is known to close connections with much output.
func (u *Upstream) Tight() bool { return u.tight.Load() }

// Commands is the table of Redis's commands.
func (u *Upstream) Commands() *commands.Table { return u.table.Load() }

// LaneStatus describes one lane for people.
type LaneStatus struct {
	Identity Identity
	Users    int // sessions
}

// Lanes lists the lanes, in no order.
func (u *Upstream) Lanes() []LaneStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := make([]LaneStatus, 0, len(u.lanes.known))
	for _, set := range u.lanes.known {
		for _, l := range set.lanes {
			if l != nil {
				list = append(list, LaneStatus{Identity: l.target.ID, Users: l.users})
			}
		}
	}
	return list
}

// Connections are this proxy's connections to Redis.
func (u *Upstream) Connections() *census.Connections { return u.dialer.Census() }

func (u *Upstream) inUse(l *Lane) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return l.users > 0
}

func (u *Upstream) laneUp(l *Lane, reconnected bool) {
	u.contact(nil)
	u.pins.Spare(l.target, l.set.owner)
	if reconnected {
		u.askRefresh()
	}
}

func (u *Upstream) trim(t time.Time) {
	inUse := map[dial.Target]bool{}
	u.mu.Lock()
	for key, set := range u.lanes.known {
		if set.users > 0 {
			inUse[key.target] = true
		}
		if set.trim(t); set.users == 0 && set.empty() {
			u.lanes.remove(set)
		}
	}
	u.mu.Unlock()
	u.pins.Trim(t, inUse)
}

func (u *Upstream) close() {
	close(u.over)
	u.mu.Lock()
	u.closed = true
	for _, set := range u.lanes.known {
		set.close()
	}
	for l := range u.lanes.retired {
		l.close()
	}
	u.mu.Unlock()
	u.pins.Close()
	u.wg.Wait()
	u.door.Close()
	u.repeats.Flush()
}
