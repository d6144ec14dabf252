package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/pins"
	"github.com/lockproxy/lockproxy/internal/upstream/sentinel"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Options configure an Upstream. Zero values pick the defaults.
type Options struct {
	// Addr is Redis's address: host:port, unix:/path, sentinel://host:port,host:port/name or
	// cluster://host:port,host:port. Required.
	Addr string

	// Map says where servers are reached that Sentinels or a cluster announce.
	Map topology.AddressMap

	// Sentinel is how the proxy connects to Sentinels.
	Sentinel Sentinel

	// FailoverWait is how long a command waits for a server that moves, before it is refused. 0: 1 s, negative: it does
	// not wait. A server at a fixed address does not move.
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

	// Exposed are the addresses at which the network can connect to the proxy without a certificate.
	Exposed []string

	// TLS, if set, makes every connection TLS. It is called for each connection, so that certificates can change. The
	// caller must not change the config that it has returned. A config without ServerName expects the host of Addr.
	TLS func() *tls.Config

	// DialTimeout bounds connecting and the handshake together. 0: 3 s.
	DialTimeout time.Duration

	// KeepAlive is the idle time before TCP keepalive probes. 0: 30 s.
	KeepAlive time.Duration

	// UserTimeout bounds the time for which written bytes may stay unacknowledged (Linux). 0: 20 s, negative: the
	// system's.
	UserTimeout time.Duration

	// authPeriod is the period of the question whether clients must authenticate, which may change while Redis runs. 0:
	// 5 s. Tests shorten it.
	authPeriod time.Duration

	// MaxPins bounds the pins in use. 0: 1000.
	MaxPins int

	// MaxPinsPerAddress bounds the pins of the clients of one address. 0: three quarters of MaxPins.
	MaxPinsPerAddress int

	// MaxLogins bounds the connections on which Redis judges identity changes. 0: 16.
	MaxLogins int

	// LoginWait is the longest wait of a session for one of them. 0: 10 s.
	LoginWait time.Duration

	// MaxLanes bounds the connections that sessions share: one for each identity in use and each Driver. 0: 256. The
	// clients of one address open three quarters of them at most.
	MaxLanes int

	// PinWait is the longest wait of a session for a pin. 0: 1 s.
	PinWait time.Duration

	Logger *zap.Logger // nil: no log
}

// Sentinel has the credentials that Sentinels want, which are not those of Redis.
type Sentinel struct {
	User, Password string
	TLS            func() *tls.Config // as Options.TLS; nil: none
}

func (o *Options) setDefaults() {
	setDefault(&o.DialTimeout, 3*time.Second)
	setDefault(&o.KeepAlive, 30*time.Second)
	setDefault(&o.UserTimeout, 20*time.Second)
	setDefault(&o.MaxLanes, 256)
	setDefault(&o.authPeriod, 5*time.Second)
	setDefault(&o.FailoverWait, time.Second)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// Changeable are the options that Upstream.Change can change. Options has their meaning.
type Changeable struct {
	Lease              time.Duration
	MaxPins            int
	MaxPinsPerAddress  int
	MaxLogins          int
	PinWait, LoginWait time.Duration
}

// Changeable is the part of the options that can change.
func (o *Options) Changeable() Changeable {
	return Changeable{
		Lease: o.Lease, MaxPins: o.MaxPins, MaxPinsPerAddress: o.MaxPinsPerAddress, MaxLogins: o.MaxLogins, PinWait: o.PinWait, LoginWait: o.LoginWait,
	}
}

func (c *Changeable) setDefaults() {
	setDefault(&c.PinWait, time.Second)
	setDefault(&c.LoginWait, 10*time.Second)
	setDefault(&c.MaxPins, 1000)
	setDefault(&c.MaxPinsPerAddress, admission.Share(c.MaxPins))
	setDefault(&c.MaxLogins, 16)
}

func (c Changeable) pins() pins.Limits {
	c.setDefaults()
	return pins.Limits{Max: c.MaxPins, MaxPerOwner: c.MaxPinsPerAddress, Wait: c.PinWait, MaxLogins: c.MaxLogins, LoginWait: c.LoginWait}
}

// Change replaces options while the proxy runs. A session keeps the pin that it has.
func (u *Upstream) Change(c Changeable) {
	u.Lease(c.Lease)
	u.pins.Change(c.pins())
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// own reports whether an identity has the proxy's own credentials. The operator must correct these.
func (o *Options) own(id Identity) bool {
	return o.Password != "" && id.User == o.User && id.Password == o.Password
}

// free reports whether the lane of an identity needs no place, because it is the identity of a new client.
func (o *Options) free(id Identity) bool {
	return id.DB == 0 && (!id.Authenticated() || o.own(id))
}

// sentinels are those that follow a primary.
type sentinels struct {
	watcher *sentinel.Watcher // nil: there are none, and the server does not move
}

// copies is how many replicas the server has, by the word of the Sentinels: also those that it does not see. 0: it is
// not known.
func (s sentinels) copies() int {
	if s.watcher == nil {
		return 0
	}
	return s.watcher.Replicas()
}

// looks reports whether an attempt to connect has failed because the proxy has just started, and the Sentinels have not
// been asked yet.
func (s sentinels) looks(err error) bool {
	return s.watcher != nil && errors.Is(err, topology.ErrUnknown) && s.watcher.Young()
}

// find makes the topology that an address describes, with the watcher that keeps it; nil: it does not change. moved is
// called when the server has moved, leases of the time that a failover takes.
func (o *Options) find(addr topology.Address, dialing dial.Options, leases *Warner, moved func(from, to string)) (dial.Resolver, *sentinel.Watcher, error) {
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
				return replicas.Role(ctx, dial.Target{At: topology.Node(addr), ID: Identity{User: o.User, Password: o.Password, Proto: 2}})
			},
			Logger: o.Logger.Named("sentinel"),
		}), nil
	case topology.KindCluster:
		nodes, err := topology.NewCluster(addr, o.Map)
		return nodes, nil, err
	default:
		server, err := topology.NewSingle(addr)
		return server, nil, err
	}
}
