package upstream

import (
	"context"
	"crypto/tls"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/pins"
	"github.com/lockproxy/lockproxy/internal/upstream/sentinel"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Options configure an Upstream. Zero means zero; there are no defaults.
type Options struct {
	// Addr is Redis's address: host:port, unix:/path, sentinel://host:port,host:port/name or
	// cluster://host:port,host:port. Required.
	Addr string

	// Map says where servers are reached that Sentinels or a cluster announce.
	Map topology.AddressMap

	// Sentinel is how the proxy connects to Sentinels.
	Sentinel Sentinel

	// FailoverWait is how long a command waits for a connection to Redis before its client is closed.
	FailoverWait time.Duration

	// BuiltinCommands means that Redis has no COMMAND to be asked: it is the embedded one, whose commands are those of
	// the built-in table.
	BuiltinCommands bool

	// Lease is the lease of locks, which should outlive a failover. 0: there are none.
	Lease time.Duration

	// User and Password are the proxy's own credentials, used for its own questions (COMMAND) and, where the
	// configuration lends them to clients, for theirs. A password without a user is the default user's.
	User, Password string

	// Lent says that clients without credentials of their own use these.
	Lent bool

	// Demanded is called from a goroutine when Redis has begun to demand a login; nil: nothing is. The connections without
	// credentials serve no other session then.
	Demanded func()

	// Exposed are the addresses at which the network can connect to the proxy without a certificate.
	Exposed []string

	// TLS, if set, makes every connection TLS. It is called for each connection, so that certificates can change. The
	// caller must not change the config that it has returned. A config without ServerName expects the host of Addr.
	TLS func() *tls.Config

	// DialTimeout bounds connecting and the handshake together.
	DialTimeout time.Duration

	// KeepAlive is the idle time before TCP keepalive probes.
	KeepAlive time.Duration

	// UserTimeout is the time for which a server may acknowledge nothing, although bytes or probes are outstanding
	// (Linux). A server without room for more acknowledges probes. 0: the system decides.
	UserTimeout time.Duration

	// lookPeriod is the period of questions about the settings of Redis. 0: 5 s. Tests shorten it.
	lookPeriod time.Duration

	// Pins bounds the pins, and the waits for them.
	Pins pins.Limits

	// MaxLanes bounds the connections that sessions share: one for each identity in use and each Driver. The
	// clients of one address open three quarters of them at most.
	MaxLanes int

	Logger *zap.Logger
}

// Sentinel has the credentials that Sentinels want, which are not those of Redis.
type Sentinel struct {
	User, Password string
	TLS            func() *tls.Config // as Options.TLS; nil: none
}

// Change replaces the limits of pins, and the lease of locks, while the proxy runs. A session keeps the pin that it
// has.
func (u *Upstream) Change(l pins.Limits, lease time.Duration) {
	u.Lease(lease)
	u.Pins.Change(l)
}

// own reports whether an identity has the proxy's own credentials. The operator must correct these.
func (o *Options) own(id Identity) bool {
	return o.Password != "" && id.User == o.User && id.Password == o.Password
}

// free reports whether the lane of an identity needs no place, because it is the identity of a new client.
func (o *Options) free(id Identity) bool {
	return id.DB == 0 && (!id.Authenticated() || o.own(id))
}

// find makes the topology that an address describes, with the watcher that keeps it; nil: it does not change. moved is
// called when the server has moved, leases of the time that a failover takes.
func (o *Options) find(
	addr topology.Address, dialing dial.Options, leases *leaseWarner, moved func(from, to string),
) (dial.Resolver, *sentinel.Watcher) {
	switch addr.Kind {
	case topology.KindSentinel:
		primary := topology.NewPrimary()
		dialing.Resolver = topology.Named{}
		dialing.TLS, dialing.Setting = o.TLS, "upstream.tls"
		replicas := dial.New(dialing)
		dialing.TLS, dialing.Setting = o.Sentinel.TLS, "sentinel.tls"
		return primary, sentinel.New(sentinel.Options{
			Name: addr.Name, Sentinels: addr.Servers, Map: o.Map, Primary: primary, Moved: moved, DownAfter: leases.DownAfter,
			Dialer: dial.New(dialing), ID: Identity{User: o.Sentinel.User, Password: o.Sentinel.Password, Proto: 3},
			Role: func(ctx context.Context, addr string) dial.Role {
				own := Identity{User: o.User, Password: o.Password, Proto: 2}
				return replicas.Role(ctx, dial.Target{At: topology.Node(addr), ID: own})
			},
			Logger: o.Logger.Named("sentinel"),
		})
	case topology.KindCluster:
		return topology.NewCluster(addr, o.Map), nil
	default:
		return topology.NewSingle(addr), nil
	}
}
