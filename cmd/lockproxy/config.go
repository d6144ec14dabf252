package main

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/certs"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Config is every setting of the proxy. Each has three spellings: the key in the file (lock.lease), the flag
// (--lock-lease) and the environment variable (LOCKPROXY_LOCK_LEASE). The flag is the key's path joined by dashes; only
// upstream.address is shortened, to --upstream.
//
// Config is the one table of settings. Its tags make the flags, the variables and the keys of the file; NewConfig has
// all defaults. A setting with the tag reload changes at SIGHUP; proxyOptions and service.Reload apply it. Those with
// the tag usual are in --help; --help-all has all. docs/SETTINGS.md is written from it, and tests compare
// configs/lockproxy.yml and the README with it.
type Config struct {
	Listen     List   `yaml:"listen" usual:"yes" help:"Addresses for clients: host:port, tls:host:port or unix:/path. With - in front, the machine may lack the address. May be repeated."`
	Embedded   bool   `yaml:"embedded" usual:"yes" help:"Serve from an in-process Redis instead of an upstream. Nothing is persisted."`
	ClientAuth string `yaml:"client-auth" help:"Credentials of clients' commands: upstream (the client's own), proxy (the proxy's, until the client logs in) or none (always the proxy's)."`

	Upstream UpstreamConfig `yaml:"upstream"`
	Sentinel SentinelConfig `yaml:"sentinel"`
	Lock     LockConfig     `yaml:"lock"`
	Drain    DrainConfig    `yaml:"drain"`
	Log      LogConfig      `yaml:"log"`
	TCP      TCPConfig      `yaml:"tcp"`
	TLS      TLSConfig      `yaml:"tls"`

	ProxyProtocol string `yaml:"proxy-protocol" help:"PROXY headers (v1 or v2) in front of TCP connections: off, optional or required."`
	AdminListen   string `yaml:"admin-listen" usual:"yes" placeholder:"HOST:PORT" help:"Address for metrics, health and a status page over HTTP. Without a host: loopback only. Unset: none."`

	AdminPprof bool `yaml:"admin-pprof" help:"Also serve profiles at admin-listen."`

	FailoverWait      time.Duration `yaml:"failover-wait" help:"How long a command waits while Redis is away or its server moves. Then the client's connection closes; in front of a cluster the command is refused."`
	MaxClients        Count         `yaml:"max-clients" reload:"yes" help:"Most client connections. More are refused."`
	MaxMemory         MemoryLimit   `yaml:"max-memory" usual:"yes" help:"Memory for all clients together: a size, or a share of the machine's or container's memory. If their buffers need more than two thirds of it, the largest clients are closed."`
	ClientOutputLimit Size          `yaml:"client-output-limit" reload:"yes" help:"Most bytes of replies that a client has not read. Beyond it the client is closed. 0: no limit."`
	MaxPins           Count         `yaml:"max-pins" reload:"yes" help:"Most connections to Redis for single clients (MULTI, SUBSCRIBE, BLPOP ...). Redis's maxclients must allow them. The clients of one address get at most three quarters."`
	MaxWaiters        Count         `yaml:"max-waiters" reload:"yes" help:"Most clients that wait for locks. More are refused."`
}

// UpstreamConfig has the address of Redis and the proxy's credentials there.
type UpstreamConfig struct {
	Address  string `yaml:"address" usual:"yes" help:"Redis: host:port, unix:/path, sentinel://host:port,host:port/name (the primary of that name) or cluster://host:port,host:port."`
	User     string `yaml:"user" help:"ACL user of the proxy's own connections."`
	Password Secret `yaml:"password" placeholder:"PASSWORD" help:"Password of the proxy's own connections. Prefer password-file or the environment: other users can see arguments."`

	PasswordFile string `yaml:"password-file" usual:"yes" placeholder:"FILE" help:"File that holds the password. One line end at its end is ignored."`

	TLS        bool   `yaml:"tls" help:"Connect to Redis by TLS."`
	CAFile     string `yaml:"ca-file" placeholder:"FILE" help:"Trusted CA certificates (PEM) for Redis's certificate. Unset: the system's."`
	CertFile   string `yaml:"cert-file" placeholder:"FILE" help:"Client certificate (PEM) for Redis and the Sentinels, if they ask for one (tls-auth-clients)."`
	KeyFile    string `yaml:"key-file" placeholder:"FILE" help:"Key (PEM) of upstream.cert-file."`
	ServerName string `yaml:"server-name" placeholder:"NAME" help:"Name that Redis's certificate must have. Unset: the host of the address."`

	Map List `yaml:"map" placeholder:"ANNOUNCED=REACHABLE" help:"Reachable address of a server that Sentinels or a cluster announce with another one: two of host:port, or two hosts. May be repeated."`
}

// SentinelConfig is how the proxy connects to the Sentinels of upstream.address. They have users and authorities of
// their own.
type SentinelConfig struct {
	User         string `yaml:"user" help:"ACL user of the proxy at the Sentinels."`
	Password     Secret `yaml:"password" placeholder:"PASSWORD" help:"Password of the proxy at the Sentinels. Prefer password-file or the environment."`
	PasswordFile string `yaml:"password-file" placeholder:"FILE" help:"File that holds the password for the Sentinels."`

	TLS    bool   `yaml:"tls" help:"Connect to the Sentinels by TLS."`
	CAFile string `yaml:"ca-file" placeholder:"FILE" help:"Trusted CA certificates (PEM) for the Sentinels' certificates. Unset: the system's."`
}

// TLSConfig is for the tls: addresses of Listen. The files are loaded again at SIGHUP.
type TLSConfig struct {
	CertFile    string `yaml:"cert-file" placeholder:"FILE" help:"Certificate (PEM) for tls: addresses, with its chain."`
	KeyFile     string `yaml:"key-file" placeholder:"FILE" help:"Key (PEM) of tls.cert-file."`
	CAFile      string `yaml:"ca-file" placeholder:"FILE" help:"Trusted CA certificates (PEM) for clients' certificates."`
	AuthClients string `yaml:"auth-clients" help:"Certificates of clients: yes (required), optional (checked if shown) or no (not asked for)."`
}

// LockConfig holds the defaults of the lock commands.
type LockConfig struct {
	Lease   time.Duration  `yaml:"lease" usual:"yes" reload:"yes" help:"Lease of a lock taken without PX or EX, renewed every third of it while the client is connected."`
	Grace   *time.Duration `yaml:"grace" usual:"yes" reload:"yes" placeholder:"DURATION" help:"Shorten the lease to this when the client's connection ends. 0s: release at once. Unset: the lease expires by itself."`
	Reentry string         `yaml:"reentry" reload:"yes" help:"The owner of a lock taken without OWNER: connection (which may acquire it again), owner (each acquire is its own owner) or auto (owner for client libraries that announce themselves, else connection)."`
	Note    string         `yaml:"note" reload:"yes" help:"Note of a lock taken without NOTE: client (its name or address and the proxy's host, from the first renewal on) or off."`
	MaxHold time.Duration  `yaml:"max-hold" reload:"yes" help:"Longest hold of a renewed lock. 0s: no limit."`

	Slow time.Duration `yaml:"slow" reload:"yes" help:"Log waits for locks and holds of locks that take longer, when they end. 0s: never."`

	Sync Replicas `yaml:"sync" reload:"yes" placeholder:"N" help:"Replicas that must have a grant before its client is told: a number, or all that the Sentinels or the cluster know. 0: none."`
}

// DrainConfig says how the proxy stops.
type DrainConfig struct {
	Delay   time.Duration `yaml:"delay" reload:"yes" help:"Time after SIGTERM or SIGINT in which clients are accepted as before while /readyz says 503."`
	Timeout time.Duration `yaml:"timeout" reload:"yes" help:"Time after drain.delay in which clients are closed at quiet moments, and holders of locks are served."`
}

// LogConfig shapes the log, which goes to standard error.
type LogConfig struct {
	Level string `yaml:"level" usual:"yes" reload:"yes" help:"Lowest level that is logged: debug, info, warn or error."`
}

// TCPConfig decides how soon a dead peer is noticed, on client and upstream connections.
type TCPConfig struct {
	Keepalive   time.Duration `yaml:"keepalive" help:"Idle time before TCP keepalive probes. There are three, a third of it apart."`
	UserTimeout time.Duration `yaml:"user-timeout" help:"Close a connection whose peer has acknowledged nothing for this time, although bytes or probes are outstanding (Linux). 0s: the system's default."`
}

const defaultUpstream = "127.0.0.1:6379"

// NewConfig returns the defaults.
func NewConfig() Config {
	return Config{
		Listen:     List{"127.0.0.1:7379", "-[::1]:7379"},
		ClientAuth: proxy.AuthUpstream,
		Upstream:   UpstreamConfig{Address: defaultUpstream},
		Lock: LockConfig{
			Lease: 30 * time.Second, Reentry: string(proxy.ReentryAuto), Note: noteClient,
			Slow: 10 * time.Second,
		},
		Drain:             DrainConfig{Timeout: 10 * time.Second},
		Log:               LogConfig{Level: "info"},
		TCP:               TCPConfig{Keepalive: 15 * time.Second, UserTimeout: 20 * time.Second},
		TLS:               TLSConfig{AuthClients: certs.AuthYes},
		ProxyProtocol:     proxy.ProxyOff,
		FailoverWait:      2 * time.Second,
		MaxClients:        10_000,
		MaxMemory:         -50, // percent
		ClientOutputLimit: Gibibyte,
		MaxPins:           1000,
		MaxWaiters:        100_000,
	}
}

// leastUserTimeout is longer than the pause after which Linux answers one probe for room and then another one.
const leastUserTimeout = 2 * time.Second

// minLease keeps renewals, every third of a lease, clear of ordinary round trips.
const minLease = 100 * time.Millisecond

// Values of lock.note.
const (
	noteClient = "client"
	noteOff    = "off"
)

// Verify reports every setting that cannot be served, named by its key.
func (c Config) Verify() error {
	var errs []error
	check := func(ok bool, key, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(key+": "+format, args...))
		}
	}
	oneOf := func(key, got string, allowed ...string) {
		check(slices.Contains(allowed, got), key, "%q is not one of %s", got, strings.Join(allowed, ", "))
	}
	atLeast := func(key string, got, least time.Duration) {
		check(got >= least, key, "%s is less than %s", got, least)
	}
	positive := func(key string, got Count) {
		check(got > 0, key, "%d is not a positive number", got)
	}

	check(len(c.Listen) > 0, "listen", "no address")
	for _, address := range c.addresses() {
		_, _, err := splitAddress(strings.TrimPrefix(address, tlsPrefix))
		check(err == nil, "listen", "%v", err)
		check(!strings.HasPrefix(address, tlsPrefix+"unix:"), "listen", "%q: a unix socket needs no TLS", address)
	}
	oneOf("tls.auth-clients", c.TLS.AuthClients, certs.AuthYes, certs.AuthOptional, certs.AuthNo)
	if c.servesTLS() {
		check(c.TLS.CertFile != "", "tls.cert-file", "needed to listen on a tls: address")
		check(c.TLS.KeyFile != "", "tls.key-file", "needed to listen on a tls: address")
		check(c.TLS.CAFile != "" || c.TLS.AuthClients == certs.AuthNo, "tls.ca-file", "needed unless tls.auth-clients is no")
	}
	oneOf("proxy-protocol", c.ProxyProtocol, proxy.ProxyOff, proxy.ProxyOptional, proxy.ProxyRequired)
	if c.AdminListen != "" {
		network, _, err := splitAddress(c.AdminListen)
		check(err == nil && network == "tcp", "admin-listen", "%q is not host:port", c.AdminListen)
	}
	check(!c.AdminPprof || c.AdminListen != "", "admin-pprof", "needs admin-listen")
	upstream, err := topology.ParseAddress(c.Upstream.Address)
	check(err == nil, "upstream.address", "%v", err)
	if own := c.ownAddress(c.Upstream.Address); own != "" && !c.Embedded {
		check(false, "upstream.address", "%s is an address of listen: the proxy would serve itself", own)
	}
	_, err = topology.ParseAddressMap(c.Upstream.Map)
	check(err == nil, "upstream.map", "%v", err)
	check(len(c.Upstream.Map) == 0 || upstream.Kind != topology.KindSingle, "upstream.map",
		"needs an upstream.address of Sentinels or of a cluster: nothing else announces addresses")
	if upstream.Kind == topology.KindSentinel {
		check(c.Sentinel.User == "" || c.Sentinel.Password != "" || c.Sentinel.PasswordFile != "",
			"sentinel.user", "needs sentinel.password")
		check(c.Sentinel.TLS || c.Sentinel.CAFile == "", "sentinel.ca-file", "needs sentinel.tls")
	} else {
		check(c.Sentinel == SentinelConfig{}, "sentinel",
			"needs an upstream.address of Sentinels, as in sentinel://host:26379/mymaster")
	}
	check(!c.Embedded || c.Upstream.Address == defaultUpstream, "embedded", "excludes upstream.address")
	oneOf("client-auth", c.ClientAuth, proxy.AuthUpstream, proxy.AuthProxy, proxy.AuthNone)
	// Settings without effect are mistakes, too: an operator who names an authority expects protection.
	check(c.Upstream.TLS || c.Upstream.CAFile == "", "upstream.ca-file", "needs upstream.tls")
	check(c.Upstream.TLS || c.Upstream.ServerName == "", "upstream.server-name", "needs upstream.tls")
	check(c.Upstream.TLS || c.Sentinel.TLS || c.Upstream.CertFile == "", "upstream.cert-file", "needs upstream.tls")
	check((c.Upstream.CertFile == "") == (c.Upstream.KeyFile == ""),
		"upstream.cert-file", "needs upstream.key-file, and the other way round")
	check(!c.Upstream.TLS || c.Upstream.ServerName != "" || !strings.HasPrefix(c.Upstream.Address, "unix:"),
		"upstream.server-name", "needed for TLS to a unix socket")
	check(c.Upstream.User == "" || c.Upstream.Password != "" || c.Upstream.PasswordFile != "",
		"upstream.user", "needs upstream.password")

	atLeast("lock.lease", c.Lock.Lease, minLease)
	if c.Lock.Grace != nil {
		atLeast("lock.grace", *c.Lock.Grace, 0)
	}
	oneOf("lock.note", c.Lock.Note, noteClient, noteOff)
	oneOf("lock.reentry", c.Lock.Reentry,
		string(proxy.ReentryAuto), string(proxy.ReentryConnection), string(proxy.ReentryOwner))
	atLeast("lock.max-hold", c.Lock.MaxHold, 0)
	atLeast("lock.slow", c.Lock.Slow, 0)
	check(c.Lock.Sync != AllReplicas || upstream.Kind != topology.KindSingle, "lock.sync",
		"all needs an upstream.address of Sentinels or of a cluster; write the number of replicas")
	atLeast("drain.delay", c.Drain.Delay, 0)
	atLeast("drain.timeout", c.Drain.Timeout, 0)
	atLeast("tcp.keepalive", c.TCP.Keepalive, time.Second)
	check(c.TCP.UserTimeout == 0 || c.TCP.UserTimeout >= leastUserTimeout, "tcp.user-timeout",
		"%s is less than %s; 0s: none", c.TCP.UserTimeout, leastUserTimeout)
	atLeast("failover-wait", c.FailoverWait, 0)
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")

	positive("max-clients", c.MaxClients)
	positive("max-pins", c.MaxPins)
	positive("max-waiters", c.MaxWaiters)
	check(c.MaxMemory < 0 || c.MaxMemory >= MemoryLimit(LeastMemory), "max-memory",
		"%s is less than %s; a share has its sign, as in 50%%", c.MaxMemory, LeastMemory)
	check(!c.Embedded || !c.Upstream.TLS, "embedded", "excludes upstream.tls")
	return errors.Join(errs...)
}

// tlsPrefix marks an address of Listen at which clients speak TLS.
const tlsPrefix = "tls:"

// servesTLS reports whether clients can connect by TLS.
func (c Config) servesTLS() bool {
	return slices.ContainsFunc(c.addresses(), func(address string) bool { return strings.HasPrefix(address, tlsPrefix) })
}

// addresses are those of Listen, without the mark of those that the machine may lack.
func (c Config) addresses() []string {
	all := make([]string, len(c.Listen))
	for i, address := range c.Listen {
		all[i] = strings.TrimPrefix(address, proxy.OptionalPrefix)
	}
	return all
}

// splitAddress turns an address of the configuration into the network and address that package net takes.
func splitAddress(address string) (network, addr string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return "", "", fmt.Errorf("%q has no path", address)
		}
		return "unix", path, nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", "", fmt.Errorf("%q is none of host:port, tls:host:port, unix:/path", address)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return "", "", fmt.Errorf("%q has no valid port", address)
	}
	return "tcp", address, nil
}

// reloaded is c with those settings of next that can change while the proxy runs. changed lists them by their keys,
// with their values; kept lists the settings that differ and cannot.
func (c Config) reloaded(next Config) (merged Config, changed, kept []string) {
	merged = c
	fresh := settingsOf(&next)
	for i, s := range settingsOf(&merged) {
		switch value := fresh[i].field; {
		case reflect.DeepEqual(s.field.Interface(), value.Interface()):
		case s.tag.Get("reload") == "yes":
			old := s.text()
			s.field.Set(value)
			changed = append(changed, s.key+": from "+old+" to "+fresh[i].text())
		default:
			kept = append(kept, s.key+": "+s.text()+", not "+fresh[i].text())
		}
	}
	return merged, changed, kept
}
