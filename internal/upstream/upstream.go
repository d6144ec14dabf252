package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/lanes"
	"github.com/lockproxy/lockproxy/internal/upstream/pins"
	"github.com/lockproxy/lockproxy/internal/upstream/sentinel"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Upstream is one Redis, with all connections to it.
type Upstream struct {
	opts    Options // immutable after New
	dialer  *dial.Dialer
	asker   *asker
	table   atomic.Pointer[commands.Table]
	refresh chan struct{} // size 1, never closed: the command table may have changed
	limits  atomic.Pointer[limits]
	wg      sync.WaitGroup
	over    chan struct{} // closed by close
	moves   atomic.Int64  // of the server to another address
	access  access        // as the log has it; owned by the caller of LookAtAuth

	Lanes *lanes.Lanes
	Pins  *pins.Pins

	authDemand
	nodes
	watcher      *sentinel.Watcher // nil: there are no Sentinels, and the server does not move
	contacts     *redisContacts
	*leaseWarner // of locks that a failover loses
}

// New checks opts. Nothing is connected before a lane or pin is asked for.
func New(opts Options) (*Upstream, error) {
	addr, err := topology.ParseAddress(opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	u := &Upstream{
		opts: opts, refresh: make(chan struct{}, 1), over: make(chan struct{}),
		authDemand:  authDemand{servers: map[Node]bool{}, witnesses: map[Node]net.Conn{}},
		contacts:    newRedisContacts(opts.Addr, opts.Logger),
		leaseWarner: &leaseWarner{lease: opts.Lease, log: opts.Logger},
	}
	dialing := dial.Options{
		Timeout: opts.DialTimeout, KeepAlive: opts.KeepAlive, Silence: opts.UserTimeout, Spawn: u.wg.Go, Stop: u.over,
	}
	var servers dial.Resolver
	servers, u.watcher = opts.find(addr, dialing, u.leaseWarner, u.moved)
	if addr.Kind != topology.KindCluster { // there another server may have the slots by now
		dialing.Wait = attemptTime
	}
	dialing.Resolver, dialing.TLS, dialing.Setting, dialing.Slow = servers, opts.TLS, "upstream.tls", u.slow
	dialing.Refused = func(at Node) { u.told(at, true) }
	dialing.Vanished = u.vanished
	u.dialer = dial.New(dialing)
	u.asker = &asker{
		Dialer: u.dialer, Cluster: addr.Kind == topology.KindCluster, Own: u.Own(), Logger: opts.Logger,
	}
	u.refreshViews(u, servers)
	u.Pins = pins.New(pins.Options{
		Dialer: u.dialer, Own: u.opts.own, Spawn: u.wg.Go, Limits: opts.Pins,
	})
	u.Lanes = lanes.New(lanes.Options{
		Size: opts.MaxLanes, Dialer: u.dialer, TLS: opts.TLS != nil, Own: u.opts.own, Free: u.opts.free,
		Logger: opts.Logger, Entries: u.contacts.Entries, Spawn: u.wg.Go, Events: lanes.Events{
			Connected: u.laneUp, Failed: u.laneFailed, Lost: u.laneLost, Stuck: u.laneStuck,
		},
	})
	u.table.Store(commands.BuiltIn())
	u.limits.Store(&defaultLimits)
	return u, nil
}

// attemptTime is how long a lane or pin tries to connect before the sessions whose commands wait for it are asked
// whether they wait on.
const attemptTime = 250 * time.Millisecond

// vanished logs that a connection was broken because its server has acknowledged nothing for that time.
func (u *Upstream) vanished(address string, silent time.Duration) {
	u.contacts.Entries.Write(zap.WarnLevel, "a connection to redis is ended: the server acknowledges nothing", "",
		zap.String("addr", address), logging.Seconds("silent", silent))
}

// Addr is Redis's address for people.
func (u *Upstream) Addr() string { return u.opts.Addr }

// Connect opens a bare connection to a server for a client library that does its own handshake.
func (u *Upstream) Connect(ctx context.Context, at Node) (net.Conn, error) {
	return u.dialer.Connect(ctx, at)
}

// Sharded reports whether the servers know shard channels, as Redis 7.0 and later does.
func (u *Upstream) Sharded() bool { return u.Commands().Lookup("spublish") != nil }

// Own is the identity of the proxy's own credentials.
func (u *Upstream) Own() Identity {
	return Identity{User: u.opts.User, Password: u.opts.Password, Proto: 2}
}

// Idle lanes and pins are kept for a while: clients that come and go by the second should find them.
const (
	idleFor    = time.Minute
	trimPeriod = 15 * time.Second
)

// Run keeps the command table fresh and closes unused connections, until ctx ends; then it closes everything. Sessions
// have ended by then.
func (u *Upstream) Run(ctx context.Context) error {
	defer u.close()
	ticks := time.NewTicker(trimPeriod)
	defer ticks.Stop()
	looks := time.NewTicker(cmp.Or(u.opts.lookPeriod, 5*time.Second))
	defer looks.Stop()
	u.wg.Go(func() { u.watchAuth(ctx) })
	if u.watcher != nil {
		u.wg.Go(func() { u.watcher.Run(ctx) })
	}
	if u.views != nil {
		u.wg.Go(func() { u.views.Run(ctx) })
	}
	u.askRefresh()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.refresh:
			u.refreshTable(ctx)
		case now := <-ticks.C:
			unused := now.Add(-idleFor)
			u.Pins.Trim(unused, u.Lanes.Trim(unused))
		case <-looks.C:
			u.lookAtSettings(ctx)
		}
	}
}

func (u *Upstream) askRefresh() {
	select {
	case u.refresh <- struct{}{}:
	default:
	}
}

// warnOfReplica logs that the one server is a replica.
func (u *Upstream) warnOfReplica(ctx context.Context) {
	if u.watcher != nil || u.cluster != nil {
		return // the primary is looked for there
	}
	if u.dialer.Role(ctx, dial.Target{At: topology.Any, ID: u.Own()}) == dial.Replica {
		u.opts.Logger.Warn("upstream is a replica, which refuses writes and locks (READONLY): name its primary",
			zap.String("addr", u.opts.Addr))
	}
}

// refreshTable asks Redis for its commands, until it answers or cannot.
func (u *Upstream) refreshTable(ctx context.Context) {
	if u.opts.BuiltinCommands {
		u.lookAtSettings(ctx)
		return
	}
	var wait dial.Backoff
	contact := make(chan struct{}, 1)
	defer u.dialer.Forget(topology.Any, contact)
	for {
		table, err := u.asker.Commands(ctx)
		if err == nil {
			u.table.Store(table)
			u.lookAtSettings(ctx)
			u.opts.Logger.Info("connected to upstream", zap.String("addr", u.opts.Addr), zap.Int("commands", table.Len()))
			u.warnOfReplica(ctx)
			return
		}
		if ctx.Err() != nil {
			return
		}
		wrong := dial.IsWrongPassword(err) && u.opts.own(u.Own())
		if dial.IsRefused(err) && !wrong && !dial.IsTemporary(err) { // its user may not be allowed to ask
			u.lookAtSettings(ctx)
			u.opts.Logger.Info("COMMAND is not available on upstream, using the built-in command table", zap.Error(err))
			return
		}
		delay, _ := wait.Next()
		if !u.looks(err) {
			u.contacts.Note(err)
		}
		u.dialer.Await(topology.Any, contact, err)
		select {
		case <-ctx.Done():
			return
		case <-contact:
		case <-time.After(delay):
		}
	}
}

// Ready reports whether Redis was reachable at the last contact, and if not why.
func (u *Upstream) Ready() (bool, error) { return u.contacts.Ready() }

// Outage is why Redis was not reachable at the last contact, and since when; zero: there was none. nil: it was.
func (u *Upstream) Outage() (since time.Time, err error) { return u.contacts.Outage() }

// Unavailable reports whether Redis was not available at the last contact.
func (u *Upstream) Unavailable() bool {
	_, err := u.contacts.Outage()
	return err != nil
}

// Away reports whether Redis cannot be reached, as far as is known; of a cluster no server. Then it has another attempt
// made.
func (u *Upstream) Away() bool {
	if u.views != nil {
		return u.Unavailable()
	}
	return u.dialer.Away(topology.Any)
}

// Probe asks Redis, on a connection of its own, whether it answers and takes writes. An error for missing rights or
// missing credentials of the proxy's own user counts as a good answer.
func (u *Upstream) Probe(ctx context.Context) error { return u.asker.Probe(ctx) }

// TryOut asks Redis, on connections of its own, for everything that the proxy needs of it, and warns of what Run warns
// of at its start. It excludes Run.
func (u *Upstream) TryOut(ctx context.Context) error {
	if u.watcher != nil {
		if err := u.watcher.Find(ctx); err != nil {
			return err
		}
	}
	err := u.asker.TryOut(ctx, u.opts.Lent)
	_ = u.LookAtAuth(ctx) // TryOut has told
	u.lookAtSettings(ctx)
	u.warnOfReplica(ctx)
	return err
}

// lookAtSettings reads the settings of Redis that matter to the proxy.
func (u *Upstream) lookAtSettings(ctx context.Context) {
	l := u.asker.Limits(ctx)
	if l == nil {
		return
	}
	u.limits.Store(l)
	u.contacts.Note(nil)
	if u.cluster != nil {
		u.DownAfter(l.downAfter)
	}
}

// MaxArgument is the longest argument that Redis takes, in bytes, as far as is known.
func (u *Upstream) MaxArgument() int64 { return u.limits.Load().argument }

// MaxShared is the longest command, in bytes, that may travel on a connection that sessions share: Redis closes the
// connection of a longer one, or might. Its query buffer may hold the commands in front, and be longer than what is in
// it, so it is a quarter of client-query-buffer-limit.
func (u *Upstream) MaxShared() int64 { return u.limits.Load().buffer / 4 }

// Tight reports whether Redis is known to close connections with much output.
func (u *Upstream) Tight() bool { return u.limits.Load().tight }

// Commands is the table of Redis's commands.
func (u *Upstream) Commands() *commands.Table { return u.table.Load() }

// Connections are this proxy's connections to Redis.
func (u *Upstream) Connections() *dial.Connections { return u.dialer.Connections() }

// Moves returns how often the server has moved to another address since the start.
func (u *Upstream) Moves() int64 { return u.moves.Load() }

// moved ends all connections to another address than the present one, and returns when they have ended. One call at a
// time.
func (u *Upstream) moved(from, to string) {
	at := topology.Any
	if from == "" {
		u.opts.Logger.Info("the primary is found", zap.String("addr", to))
		u.dialer.Moved(at)
		return
	}
	u.opts.Logger.Warn("the primary has moved", zap.String("from", from), zap.String("to", to))
	u.moves.Add(1)
	u.Lanes.Paused(time.Time{}) // CLIENT PAUSE ended with the old server
	u.dialer.Moved(at)
	u.askRefresh()
}

// laneUp notes that a lane has a connection.
func (u *Upstream) laneUp(t dial.Target, owner string, again bool) {
	u.contacts.Note(nil)
	u.Pins.Spare(t, owner)
	if again {
		u.askRefresh()
	}
}

// laneFailed notes that a lane has no connection. In a cluster one server says nothing of the others. That Redis cannot
// be reached, or takes no clients now, matters without a command as well: the next client may ask why. Another refusal
// may concern one identity alone.
func (u *Upstream) laneFailed(_ dial.Target, err error, inUse bool) {
	if u.views != nil {
		u.views.Ask(topology.Any, nil)
		return
	}
	if (inUse || !dial.IsRefused(err) || dial.IsTemporary(err)) && !u.looks(err) {
		u.contacts.Note(err)
	}
}

// looks reports whether an attempt to connect has failed because the proxy has just started, and the Sentinels have not
// been asked yet.
func (u *Upstream) looks(err error) bool {
	return u.watcher != nil && errors.Is(err, topology.ErrUnknown) && u.watcher.Young()
}

func (u *Upstream) close() {
	close(u.over)
	u.Lanes.Close()
	u.Pins.Close()
	u.wg.Wait()
	for _, nc := range u.witnesses {
		u.dialer.HangUp(nc)
	}
	u.contacts.Entries.Flush()
}

// Replicas is how many replicas the primary of a key has, by the word of the Sentinels or of the cluster: also those
// that are down. 0: it is not known.
func (u *Upstream) Replicas(key string) int {
	if v := u.View(); v != nil {
		return v.Replicas(hashslot.Of([]byte(key)))
	}
	if u.watcher != nil {
		return u.watcher.Replicas()
	}
	return 0
}
