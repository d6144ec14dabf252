package fleet

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The servers that can be compared.
const (
	Direct    = "direct"
	Twemproxy = "twemproxy"
	Envoy     = "envoy"
	HAProxy   = "haproxy"
	Pipe      = "pipe"
	Lockproxy = "lockproxy"
)

// Names are all servers in front of one Redis, in the order of the tables.
func Names() []string { return []string{Direct, Twemproxy, HAProxy, Lockproxy} }

// Server is one address to measure.
type Server struct {
	Name  string
	Addr  string
	Proxy *Process // nil for Redis itself
	Redis *Process
	// Others are further servers of Redis behind Addr.
	Others []*Process
	// RedisAddr is where the Redis behind Addr is reached without a proxy.
	RedisAddr string
	// Upstream is how lockproxy is told to reach Redis.
	Upstream string
	// Metrics is the address of the proxy's Prometheus metrics, or "".
	Metrics string
}

// Programs are the paths of the programs that a fleet is made of; a missing one is "".
type Programs struct {
	Redis, RedisBenchmark, Twemproxy, HAProxy, Envoy, Lockproxy string

	// Baseline is another build of lockproxy, to compare Lockproxy with; "": none.
	Baseline string
}

// Find looks for the installed programs. lockproxy is the path of the one to measure.
func Find(lockproxy string) (Programs, error) {
	p := Programs{
		Redis: look("redis-server"), RedisBenchmark: look("redis-benchmark"),
		Twemproxy: look("nutcracker"), HAProxy: look("haproxy"), Envoy: envoy(), Lockproxy: lockproxy,
	}
	if p.Redis == "" {
		return p, fmt.Errorf("redis-server: %w", exec.ErrNotFound)
	}
	return p, nil
}

// look finds a program, also where programs for administrators are and a user's PATH does not lead.
func look(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		return path
	}
	return ""
}

// Missing says why a server cannot be measured, or "" if it can.
func (p Programs) Missing(name string) string {
	switch {
	case name == Twemproxy && p.Twemproxy == "":
		return "no nutcracker on this system"
	case name == HAProxy && p.HAProxy == "":
		return "no haproxy on this system"
	case name == Envoy && p.Envoy == "":
		return "no envoy on this system"
	}
	return ""
}

var versionNumber = regexp.MustCompile(`\d+\.\d+[^\s,/]*`)

// Versions tells which versions are compared, as one line.
func (p Programs) Versions() string {
	var all []string
	for _, program := range []struct{ name, bin, arg string }{
		{"Redis", p.Redis, "--version"},
		{"twemproxy", p.Twemproxy, "-V"},
		{"HAProxy", p.HAProxy, "-v"},
		{"Envoy", p.Envoy, "--version"},
	} {
		if program.bin == "" {
			continue
		}
		out, _ := exec.Command(program.bin, program.arg).CombinedOutput() // twemproxy exits with 1
		text := string(out)
		if _, version, ok := strings.Cut(text, program.bin); ok { // Envoy says its path at first
			text = version
		}
		all = append(all, program.name+" "+versionNumber.FindString(text))
	}
	return strings.Join(all, ", ")
}

// Fleet is a Redis with servers in front of it.
type Fleet struct {
	Servers map[string]*Server

	// Baseline has the servers of the other build of lockproxy, in front of the same Redis; nil: there is none. It ends
	// with this Fleet.
	Baseline *Fleet

	// Nodes are the servers of Redis: the primaries, and behind them the replicas of each, in the same order.
	Nodes []*Node
	// Sentinels are the addresses of the Sentinels.
	Sentinels []string

	primaries int // of Nodes
	dir       string
	processes []*Process
	fileLimit int
	lastPort  int // given out by freePort
}

// Options say what a fleet is made of.
type Options struct {
	Programs  Programs
	Topology  Topology
	Names     []string // servers to start; Redis always is
	FileLimit int      // open files per process
	Lockproxy []string // further flags of lockproxy
}

// Start starts a fleet. All its servers answer when it returns.
func Start(ctx context.Context, opts Options) (*Fleet, error) {
	dir, err := os.MkdirTemp("", "lockproxy-bench-")
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	f := &Fleet{Servers: map[string]*Server{}, dir: dir, fileLimit: opts.FileLimit, lastPort: firstPort + os.Getpid()%5000}
	if err := f.start(ctx, opts); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, opts Options) error {
	direct, err := f.redises(ctx, opts.Programs.Redis, opts.Topology)
	if err != nil {
		return err
	}
	f.Servers[Direct] = direct
	for _, name := range opts.Names {
		if name == Direct || opts.Programs.Missing(name) != "" {
			continue
		}
		server := &Server{Name: name, Redis: direct.Redis, Others: direct.Others, RedisAddr: direct.Addr, Upstream: direct.Upstream}
		if server.Addr, err = f.freePort(); err != nil {
			return err
		}
		switch name {
		case Twemproxy:
			err = f.twemproxy(ctx, opts.Programs.Twemproxy, server)
		case HAProxy:
			err = f.haproxy(ctx, opts.Programs.HAProxy, server)
		case Pipe:
			err = f.pipe(ctx, server)
		case Envoy:
			err = f.envoy(ctx, opts.Programs.Envoy, server)
		default:
			if err = f.lockproxy(ctx, opts, opts.Programs.Lockproxy, server); err == nil && opts.Programs.Baseline != "" {
				err = f.baseline(ctx, opts, *server)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.Servers[name] = server
	}
	return nil
}

// baseline starts the other build of a server.
func (f *Fleet) baseline(ctx context.Context, opts Options, s Server) (err error) {
	if f.Baseline == nil {
		f.Baseline = &Fleet{Servers: map[string]*Server{Direct: f.Servers[Direct]}}
	}
	if s.Addr, err = f.freePort(); err != nil {
		return err
	}
	f.Baseline.Servers[s.Name] = &s
	if err := f.lockproxy(ctx, opts, opts.Programs.Baseline, &s); err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	return nil
}

// Close ends all processes of the fleet, those in front first.
func (f *Fleet) Close() {
	for _, p := range slices.Backward(f.processes) {
		p.Kill() // nothing of it is kept, and a drain would only take time
	}
	_ = os.RemoveAll(f.dir) // a temporary directory
}

func (f *Fleet) run(ctx context.Context, addr, name, bin string, args ...string) (*Process, error) {
	p, err := startProcess(f.dir, name, bin, args...)
	if err != nil {
		return nil, err
	}
	f.processes = append(f.processes, p)
	return p, p.answers(ctx, addr)
}

// Ports come from below the range that systems give to outgoing connections, of which there will be many.
const firstPort, endPort = 20000, 32000

// freePort finds an address for a server. It returns each only once: who asks has not bound it yet.
func (f *Fleet) freePort() (string, error) {
	for f.lastPort++; f.lastPort < endPort; f.lastPort++ {
		addr := fmt.Sprintf("127.0.0.1:%d", f.lastPort)
		ln, err := net.Listen("tcp4", addr)
		if err != nil {
			continue
		}
		return addr, ln.Close()
	}
	return "", fmt.Errorf("no free port below %d", endPort)
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// A pool of one server with the defaults of twemproxy, of which one is a single connection to it.
const twemproxyConfig = `bench:
  listen: %s
  redis: true
  backlog: 4096
  preconnect: true
  servers:
   - %s:1
`

func (f *Fleet) twemproxy(ctx context.Context, bin string, s *Server) (err error) {
	path, stats := filepath.Join(f.dir, "nutcracker.yml"), ""
	if stats, err = f.freePort(); err != nil {
		return err
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, twemproxyConfig, s.Addr, s.RedisAddr), 0o600); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	s.Proxy, err = f.run(ctx, s.Addr, "twemproxy", bin, "-c", path, "-a", "127.0.0.1", "-s", port(stats), "-i", "3600000")
	return err
}

const haproxyConfig = `global
  maxconn %d
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen bench
  bind %s backlog 4096
  server redis %s
`

func (f *Fleet) haproxy(ctx context.Context, bin string, s *Server) (err error) {
	path := filepath.Join(f.dir, "haproxy.cfg")
	maxconn := (f.fileLimit - 256) / 2 // each client takes two
	if err := os.WriteFile(path, fmt.Appendf(nil, haproxyConfig, maxconn, s.Addr, s.RedisAddr), 0o600); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	s.Proxy, err = f.run(ctx, s.Addr, "haproxy", bin, "-db", "-f", path)
	return err
}

func (f *Fleet) lockproxy(ctx context.Context, opts Options, bin string, s *Server) (err error) {
	const upstream = 2500 // files that its connections to Redis may take, which it refuses to start without
	args := append([]string{
		"--listen", s.Addr, "--upstream", s.Upstream,
		"--max-clients", fmt.Sprint(f.fileLimit - upstream), "--log-level", "warn",
	}, opts.Lockproxy...)
	if s.Metrics, err = f.freePort(); err != nil {
		return err
	}
	args = append(args, "--admin-listen", s.Metrics)
	s.Proxy, err = f.run(ctx, s.Addr, fmt.Sprintf("%s-%s", strings.ReplaceAll(s.Name, " ", "-"), port(s.Addr)), bin, args...)
	return err
}
