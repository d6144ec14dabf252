package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := NewConfig().Verify(); err != nil {
		t.Fatal(err)
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	negative := -time.Second
	secure, tlsFiles := []string{"tls::7379"}, TLSConfig{CertFile: "c", KeyFile: "k", CAFile: "a", AuthClients: "yes"}
	tests := []struct {
		want string
		edit func(*Config)
	}{
		{"listen: no address", func(c *Config) { c.Listen = nil }},
		{`listen: "unix:" has no path`, func(c *Config) { c.Listen = []string{"unix:"} }},
		{`listen: "127.0.0.1:http-or-so" has no valid port`, func(c *Config) { c.Listen = []string{"127.0.0.1:http-or-so"} }},
		{`listen: ":65536" has no valid port`, func(c *Config) { c.Listen = []string{":65536"} }},
		{`upstream.address: no address of Redis, which is host:port, unix:/path, sentinel://host:port,host:port/name or cluster://host:port,host:port`, func(c *Config) { c.Upstream.Address = "redis" }},
		{"upstream.user: needs upstream.password", func(c *Config) { c.Upstream.User = "u" }},
		{"embedded: excludes upstream.address", func(c *Config) { c.Embedded, c.Upstream.Address = true, "redis:6379" }},
		{`client-auth: "all" is not one of upstream, proxy, none`, func(c *Config) { c.ClientAuth = "all" }},
		{"lock.lease: 99ms is less than 100ms", func(c *Config) { c.Lock.Lease = 99 * time.Millisecond }},
		{"lock.grace: -1s is less than 0s", func(c *Config) { c.Lock.Grace = &negative }},
		{"lock.sync: all needs an upstream.address of Sentinels or of a cluster; write the number of replicas", func(c *Config) { c.Lock.Sync = AllReplicas }},
		{"lock.max-hold: -1s is less than 0s", func(c *Config) { c.Lock.MaxHold = negative }},
		{"drain.delay: -1s is less than 0s", func(c *Config) { c.Drain.Delay = negative }},
		{"drain.timeout: -1s is less than 0s", func(c *Config) { c.Drain.Timeout = negative }},
		{"tcp.keepalive: 0s is less than 1s", func(c *Config) { c.TCP.Keepalive = 0 }},
		{"upstream.address: 127.0.0.1:7379 is an address of listen: the proxy would serve itself", func(c *Config) { c.Upstream.Address = "127.0.0.1:7379" }},
		{"upstream.address: :7379 is an address of listen: the proxy would serve itself", func(c *Config) {
			c.Listen, c.Upstream.Address = List{":7379"}, "localhost:7379"
		}},
		{"upstream.address: unix:/s is an address of listen: the proxy would serve itself", func(c *Config) { c.Listen, c.Upstream.Address = List{"unix:/s"}, "unix:/s" }},
		{"tcp.user-timeout: -1s is less than 2s; 0s: none", func(c *Config) { c.TCP.UserTimeout = negative }},
		{`log.level: "loud" is not one of debug, info, warn, error`, func(c *Config) { c.Log.Level = "loud" }},
		{`listen: "nowhere" is none of host:port, tls:host:port, unix:/path`, func(c *Config) { c.Listen, c.TLS = []string{"tls:nowhere"}, tlsFiles }},
		{`listen: "tls:unix:/s": a unix socket needs no TLS`, func(c *Config) { c.Listen, c.TLS = []string{"tls:unix:/s"}, tlsFiles }},
		{"tls.cert-file: needed to listen on a tls: address", func(c *Config) { c.Listen, c.TLS = secure, tlsFiles; c.TLS.CertFile = "" }},
		{"tls.key-file: needed to listen on a tls: address", func(c *Config) { c.Listen, c.TLS = secure, tlsFiles; c.TLS.KeyFile = "" }},
		{"tls.ca-file: needed unless tls.auth-clients is no", func(c *Config) { c.Listen, c.TLS = secure, tlsFiles; c.TLS.CAFile = "" }},
		{`tls.auth-clients: "maybe" is not one of yes, optional, no`, func(c *Config) { c.TLS.AuthClients = "maybe" }},
		{"upstream.ca-file: needs upstream.tls", func(c *Config) { c.Upstream.CAFile = "f" }},
		{"upstream.cert-file: needs upstream.key-file, and the other way round", func(c *Config) { c.Upstream.TLS, c.Upstream.CertFile = true, "f" }},
		{"upstream.server-name: needed for TLS to a unix socket", func(c *Config) { c.Upstream.TLS, c.Upstream.Address = true, "unix:/s" }},
		{"upstream.address: the name of the primary is missing: write sentinel://host:port,host:port/mymaster", func(c *Config) { c.Upstream.Address = "sentinel://a:26379" }},
		{"upstream.map: entry 1 is not announced=reachable, as in 10.0.0.5:6379=redis-a.example:6379", func(c *Config) { c.Upstream.Address, c.Upstream.Map = "sentinel://a:1/m", []string{"a"} }},
		{"upstream.map: needs an upstream.address of Sentinels or of a cluster: nothing else announces addresses", func(c *Config) { c.Upstream.Map = []string{"a=b"} }},
		{"sentinel: needs an upstream.address of Sentinels, as in sentinel://host:26379/mymaster", func(c *Config) { c.Sentinel.Password = "x" }},
		{"sentinel.user: needs sentinel.password", func(c *Config) { c.Upstream.Address, c.Sentinel.User = "sentinel://a:1/m", "u" }},
		{"sentinel.ca-file: needs sentinel.tls", func(c *Config) { c.Upstream.Address, c.Sentinel.CAFile = "sentinel://a:1/m", "f" }},
		{"failover-wait: -1s is less than 0s", func(c *Config) { c.FailoverWait = negative }},
		{"embedded: excludes upstream.tls", func(c *Config) { c.Embedded, c.Upstream.TLS = true, true }},
		{`proxy-protocol: "v2" is not one of off, optional, required`, func(c *Config) { c.ProxyProtocol = "v2" }},
		{`admin-listen: "9121" is not host:port`, func(c *Config) { c.AdminListen = "9121" }},
		{`admin-listen: "unix:/s" is not host:port`, func(c *Config) { c.AdminListen = "unix:/s" }},
		{"max-clients: 0 is not a positive number", func(c *Config) { c.MaxClients = 0 }},
		{`lock.note: "yes" is not one of client, off`, func(c *Config) { c.Lock.Note = "yes" }},
		{`lock.reentry: "never" is not one of auto, connection, owner`, func(c *Config) { c.Lock.Reentry = "never" }},
		{"max-pins: -1 is not a positive number", func(c *Config) { c.MaxPins = -1 }},
		{"max-waiters: 0 is not a positive number", func(c *Config) { c.MaxWaiters = 0 }},
	}
	for _, test := range tests {
		t.Run(test.want, func(t *testing.T) {
			cfg := NewConfig()
			test.edit(&cfg)
			err := cfg.Verify()
			if err == nil || err.Error() != test.want {
				t.Fatalf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestDocumentedFileEqualsDefaults(t *testing.T) {
	got, err := readFile("../../configs/lockproxy.yml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(NewConfig(), got); diff != "" {
		t.Fatalf("configs/lockproxy.yml differs from NewConfig (-defaults +file):\n%s", diff)
	}
}

// Equality alone would not notice a key that is missing from the file.
func TestDocumentedFileNamesEveryKey(t *testing.T) {
	documented := fileKeys(t, "../../configs/lockproxy.yml")
	for _, key := range settings() {
		if !documented[key] {
			t.Errorf("configs/lockproxy.yml has no key %s", key)
		}
	}
}

func TestExposedAddresses(t *testing.T) {
	for auth, want := range map[string][]string{
		"yes": {":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "redis.example:1"},
		"no":  {":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "redis.example:1", "tls::2"},
	} {
		cfg := NewConfig()
		cfg.TLS.AuthClients = auth
		cfg.Listen = []string{"127.0.0.1:1", "127.9.0.1:1", "localhost:1", "[::1]:1", "unix:/s", ":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "redis.example:1", "tls::2", "tls:127.0.0.1:2"}
		if diff := cmp.Diff(want, cfg.exposed()); diff != "" {
			t.Error(diff)
		}
	}
}
