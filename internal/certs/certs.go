// Package certs loads certificates, keys and authorities from files, and loads them again on demand without touching
// connections that exist.
//
//	files ──load──► both sides' tls.Config ──swap──► Store ◄── every new connection asks for the current one
//	           │
//	           └─ one bad file: nothing is swapped
//
// It starts no goroutines. Invariant: the files of one connection were all loaded by one call of New or Reload.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Whether clients show certificates, in the words of Redis's tls-auth-clients.
const (
	AuthNo       = "no"       // no certificate is asked for
	AuthOptional = "optional" // a client may show none; a certificate that is shown must be good
	AuthYes      = "yes"      // a certificate is required
)

// Options name the files, all that are required. A side that is nil has no TLS. Logger is required.
type Options struct {
	Server   *ServerOptions
	Upstream *UpstreamOptions
	Sentinel *UpstreamOptions
	Logger   *zap.Logger
}

// ServerOptions are for connections of clients. All files are PEM.
type ServerOptions struct {
	CertFile    string // certificate and, behind it, the chain; required
	KeyFile     string // its key; required
	CAFile      string // the authorities for clients' certificates; required unless AuthClients is AuthNo
	AuthClients string // AuthYes (default, as in Redis), AuthOptional or AuthNo
}

// UpstreamOptions are for connections to Redis, or to Sentinels. All files are PEM.
type UpstreamOptions struct {
	CAFile            string // the authorities for Redis's certificate; empty: the system's authorities
	CertFile, KeyFile string // shown when Redis asks; both or none
	ServerName        string // the name that Redis's certificate must have; empty: the host that is dialled
}

// Store holds the files of the last load. All methods may be called from any goroutine.
type Store struct {
	opts   Options     // immutable after New
	server *tls.Config // immutable: sends every handshake to current

	reload  sync.Mutex // one at a time
	current atomic.Pointer[pair]
}

// pair is the outcome of one load. Its configs are never changed.
type pair struct{ server, upstream, sentinel *tls.Config }

// New loads all files.
func New(opts Options) (*Store, error) {
	s := &Store{opts: opts}
	if opts.Server != nil {
		s.server = &tls.Config{
			MinVersion: tls.VersionTLS12,
			// A session is resumed only if the current authorities accept its certificates.
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load().server, nil },
		}
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// Server is for connections of clients; each handshake uses the current files. nil: that side has no TLS.
func (s *Store) Server() *tls.Config { return s.server }

// Upstream is for the next connection to Redis. nil: that side has no TLS. The caller must not change it.
func (s *Store) Upstream() *tls.Config { return s.current.Load().upstream }

// Sentinel is for the next connection to a Sentinel. nil: that side has no TLS. The caller must not change it.
func (s *Store) Sentinel() *tls.Config { return s.current.Load().sentinel }

// Ends are the times after which the certificates that the proxy shows are not valid, by side.
func (s *Store) Ends() map[string]time.Time {
	ends := map[string]time.Time{}
	p := s.current.Load()
	for side, cfg := range map[string]*tls.Config{"clients": p.server, "upstream": p.upstream, "sentinels": p.sentinel} {
		if cfg != nil && len(cfg.Certificates) > 0 {
			ends[side] = cfg.Certificates[0].Leaf.NotAfter
		}
	}
	return ends
}

// Reload loads all files again, for connections to come. If one of them is bad, nothing changes.
func (s *Store) Reload() error {
	s.reload.Lock()
	defer s.reload.Unlock()
	if err := s.load(); err != nil {
		s.opts.Logger.Error("certificates not reloaded, the old ones stay in use", zap.Error(err))
		return err
	}
	return nil
}

func (s *Store) load() error {
	var (
		next pair
		err  error
	)
	if s.opts.Server != nil {
		if next.server, err = s.opts.Server.load(); err != nil {
			return fmt.Errorf("certificates for clients: %w", err)
		}
		s.logLoaded("for clients", next.server)
	}
	if s.opts.Upstream != nil {
		if next.upstream, err = s.opts.Upstream.load(); err != nil {
			return fmt.Errorf("certificates for the upstream: %w", err)
		}
		s.logLoaded("for the upstream", next.upstream)
	}
	if s.opts.Sentinel != nil {
		if next.sentinel, err = s.opts.Sentinel.load(); err != nil {
			return fmt.Errorf("certificates for the sentinels: %w", err)
		}
		s.logLoaded("for the sentinels", next.sentinel)
	}
	s.current.Store(&next)
	return nil
}

func (s *Store) logLoaded(side string, cfg *tls.Config) {
	for _, c := range cfg.Certificates {
		s.opts.Logger.Info("certificate loaded", zap.String("side", side), zap.String("subject", c.Leaf.Subject.String()),
			zap.Time("not_after", c.Leaf.NotAfter))
		switch now := time.Now(); {
		case now.After(c.Leaf.NotAfter):
			s.opts.Logger.Warn("the certificate has expired", zap.String("side", side), zap.Time("not_after", c.Leaf.NotAfter))
		case now.Before(c.Leaf.NotBefore):
			s.opts.Logger.Warn("the certificate is not valid yet",
				zap.String("side", side), zap.Time("not_before", c.Leaf.NotBefore))
		}
	}
}

func (o *ServerOptions) load() (*tls.Config, error) {
	cert, err := loadPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	switch o.AuthClients {
	case AuthNo:
		return cfg, nil
	case AuthOptional:
		cfg.ClientAuth = tls.VerifyClientCertIfGiven
	default:
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	cfg.ClientCAs, err = loadAuthorities(o.CAFile)
	return cfg, err
}

func (o *UpstreamOptions) load() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	var err error
	if o.CAFile != "" {
		if cfg.RootCAs, err = loadAuthorities(o.CAFile); err != nil {
			return nil, err
		}
	}
	if o.CertFile != "" {
		cert, err := loadPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

func loadPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("load %s with %s: %w", certFile, keyFile, err)
	}
	return cert, nil
}

func loadAuthorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load authorities: no certificate in %s", file)
	}
	return pool, nil
}
