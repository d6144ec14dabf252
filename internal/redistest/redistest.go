// Package redistest runs real redis-servers, Sentinels and clusters for tests, and signs certificates for them. It is a
// leaf: it imports nothing of this module, and only tests import it.
//
//	Start ──► free port + own directory ──► redis-server ──► PING answered on the unix socket
//	                                            │
//	          Kill Stop Restart Pause Continue ─┤ by process id, on the same port and directory
//	                                            │
//	t.Cleanup ──────────────────────────────────┴─► SIGKILL, directory removed
//
// One goroutine per running process, superviseLocked, starts it and waits for its end.
//
// The binary is $LOCKPROXY_REDIS_SERVER or else redis-server from PATH (valkey-server works as well). Without one the
// test is skipped with the reason; LOCKPROXY_REQUIRE_REDIS=1 makes that a failure.
package redistest

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// startLimit bounds starting, stopping and the first synchronisation of a replica on a loaded machine.
	startLimit = time.Minute
	// probeEvery is the pause between two questions to a server that is not ready yet, at first.
	probeEvery = 3 * time.Millisecond
	// probeAtLeast is the longest such pause.
	probeAtLeast = 25 * time.Millisecond
	// maxSocketPath is what sun_path holds on the systems we run on (104 on macOS, 108 on Linux), less the final zero.
	maxSocketPath = 103
)

// Server is one redis-server process, or the place of one that is down. Its methods report failures to the test that
// started it and so belong on that test's goroutine.
type Server struct {
	t      testing.TB // immutable
	bin    string     // immutable
	dir    string     // immutable; holds socket, log and data; survives Restart
	conf   []string   // immutable; what comes before all options: nothing, or the file of a Sentinel
	place  Place      // immutable
	port   int        // fixed once Start has returned
	socket string     // immutable
	paused atomic.Bool

	mu   sync.Mutex // guards the fields below
	args []string   // extra arguments of the latest start
	run  *Process   // latest process; it may have ended
}

// Start runs a redis-server without persistence and returns when it answers. Extra arguments are in the form of the
// redis-server command line ("--appendonly", "yes") and win over the defaults. The server is killed when t ends.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartAt(t, Loopback, args...)
}

// StartAt is Start at another place.
func StartAt(t testing.TB, place Place, args ...string) *Server {
	t.Helper()
	s := newServer(t, place)
	s.launch(args)
	return s
}

// newServer has a directory and a port, and is down.
func newServer(t testing.TB, place Place) *Server {
	t.Helper()
	s := &Server{t: t, bin: binary(t, place.Program), place: place}
	s.dir, s.socket = socketDir(t)
	t.Cleanup(s.cleanup)
	s.port = Port(t)
	return s
}

// launch starts a server for the first time. Its port may change: another process may take it between the look and the
// start.
func (s *Server) launch(args []string) {
	s.t.Helper()
	var err error
	for range 10 {
		if err = s.start(args); err == nil {
			return
		}
		if !strings.Contains(s.logTail(), "Address already in use") {
			break
		}
		_ = os.Remove(s.logFile())
		s.port = Port(s.t)
	}
	s.t.Fatalf("redistest: start %s: %v\n%s", s.bin, err, s.logTail())
}

// StartReplica runs a replica of the given server and returns when its link is up and the first copy is complete.
func StartReplica(t testing.TB, of *Server, args ...string) *Server {
	t.Helper()
	return StartReplicaAt(t, Loopback, of, args...)
}

// StartReplicaAt is StartReplica at another place.
func StartReplicaAt(t testing.TB, place Place, of *Server, args ...string) *Server {
	t.Helper()
	replica := []string{"--replicaof", of.place.Host + " " + strconv.Itoa(of.port)}
	if password := of.password(); password != "" {
		replica = append(replica, "--masterauth", password, "--requirepass", password)
	}
	s := StartAt(t, place, append(replica, args...)...)
	Eventually(t, startLimit, "the replica's link to be up", func() bool {
		info, _ := s.Do(t, "INFO", "replication").(string)
		return strings.Contains(info, "master_link_status:up")
	})
	return s
}

// Addr is the server's TCP address, 127.0.0.1:port unless it is at another place. It stays the same over Restart.
func (s *Server) Addr() string { return net.JoinHostPort(s.place.Host, strconv.Itoa(s.port)) }

// Socket is the path of the server's unix socket. It stays the same over Restart.
func (s *Server) Socket() string { return s.socket }

// Dir is the server's own directory: its data files are there if persistence is switched on.
func (s *Server) Dir() string { return s.dir }

// Pid is the process id of the server, or 0 while it is down.
func (s *Server) Pid() int {
	p := s.running()
	if p == nil {
		return 0
	}
	return p.Pid()
}

// Kill ends the server with SIGKILL, as a crash would, and returns when the process is gone.
func (s *Server) Kill() {
	s.t.Helper()
	s.end(syscall.SIGKILL)
}

// Stop ends the server in order (SIGTERM: it saves if persistence is on) and returns when it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	s.end(syscall.SIGTERM)
}

// Restart stops the server if it runs and starts it again on the same port, socket and directory. Arguments replace
// those of the start before; none keeps them.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.Stop()
	if len(args) == 0 {
		s.mu.Lock()
		args = s.args
		s.mu.Unlock()
	}
	if err := s.start(args); err != nil {
		s.t.Fatalf("redistest: restart: %v\n%s", err, s.logTail())
	}
}

// Pause stops the process where it is (SIGSTOP): connections stay open and nothing is answered until Continue.
func (s *Server) Pause() {
	s.t.Helper()
	s.paused.Store(true)
	s.signal(syscall.SIGSTOP)
}

// Continue lets a paused server go on (SIGCONT).
func (s *Server) Continue() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
	s.paused.Store(false)
}

// serves reports whether the server runs and is not paused.
func (s *Server) serves() bool { return s.Pid() != 0 && !s.paused.Load() }

func (s *Server) start(args []string) error {
	argv := slices.Concat(s.conf, []string{
		"--port", strconv.Itoa(s.port), "--bind", s.place.Host, "--protected-mode", "no",
		"--unixsocket", s.socket, "--dir", s.dir,
		"--logfile", s.logFile(), "--save", "", "--appendonly", "no", "--daemonize", "no",
		// With it, a replica counts only from its first acknowledgement on, of which it sends one a second.
		"--repl-diskless-sync", "no",
		"--hz", "100", // a blocked command times out at the next tick of the clock, by default up to 100 ms later
	}, args)
	argv = slices.Concat(s.place.Inside, []string{s.bin}, argv)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = s.dir
	p, err := StartProcess(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.args, s.run = slices.Clone(args), p
	s.mu.Unlock()
	s.paused.Store(false)
	return s.awaitReady(p)
}

// awaitReady returns when the server answers on its unix socket. The socket is ours alone, and a server that cannot
// have its TCP port ends before it opens the socket, so the answer proves both.
func (s *Server) awaitReady(p *Process) error {
	deadline := time.NewTimer(startLimit)
	defer deadline.Stop()
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for {
		select {
		case <-p.Exited:
			return fmt.Errorf("server ended at start: %w", p.Err)
		case <-deadline.C:
			s.end(syscall.SIGKILL)
			return fmt.Errorf("no answer within %v", startLimit)
		case <-probe.C:
			if s.answers() {
				return nil
			}
		}
	}
}

// answers reports whether a PING gets a reply that is not LOADING. NOAUTH is an answer too, but says nothing about
// loading, so a known password is sent.
func (s *Server) answers() bool {
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	in := bufio.NewReader(c)
	if password := s.password(); password != "" {
		if _, err := c.Write([]byte("AUTH " + password + "\r\n")); err != nil {
			return false
		}
		if _, err := in.ReadString('\n'); err != nil {
			return false
		}
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := in.ReadString('\n')
	return err == nil && !strings.HasPrefix(line, "-LOADING")
}

func (s *Server) running() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil || !s.run.Running() {
		return nil
	}
	return s.run
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	p := s.running()
	if p == nil {
		s.t.Fatalf("redistest: %v: the server is down", sig)
	}
	if err := p.Cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v: %v", sig, err)
	}
}

// end sends the signal and waits for the process to be reaped; a server that is down is left alone.
func (s *Server) end(sig syscall.Signal) {
	s.t.Helper()
	p := s.running()
	if p == nil {
		return
	}
	// The process may be gone by now, so the errors say nothing. A paused process must go on to see SIGTERM.
	p.Signal(sig)
	p.Signal(syscall.SIGCONT)
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case <-p.Exited:
	case <-limit.C:
		p.Kill()
		s.t.Errorf("redistest: the server did not end within %v of %v", startLimit, sig)
	}
}

func (s *Server) cleanup() {
	s.end(syscall.SIGKILL)
	if s.t.Failed() {
		s.t.Logf("redistest: end of the log of %s:\n%s", s.Addr(), s.logTail())
	}
	_ = os.RemoveAll(s.dir)
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "redis.log") }

// logTail returns the last 2 KiB of the server's log.
func (s *Server) logTail() string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return "no log: " + err.Error()
	}
	return string(b[max(0, len(b)-2048):])
}

// password is what the latest start set with --requirepass.
func (s *Server) password() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.args) - 2; i >= 0; i-- {
		if s.args[i] == "--requirepass" {
			return s.args[i+1]
		}
	}
	return ""
}

func binary(t testing.TB, program string) string {
	t.Helper()
	name := cmp.Or(program, os.Getenv("LOCKPROXY_REDIS_SERVER"), "redis-server")
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("LOCKPROXY_REQUIRE_REDIS") == "1" {
		t.Fatalf("LOCKPROXY_REQUIRE_REDIS=1 but there is no Redis: %v", err)
	}
	t.Skipf("no Redis for this test: %v (set LOCKPROXY_REDIS_SERVER to a redis-server or valkey-server)", err)
	return ""
}

// socketDir makes a directory whose path is short enough for a unix socket; t.TempDir holds the test's name and is not.
func socketDir(t testing.TB) (dir, socket string) {
	t.Helper()
	for _, parent := range []string{"", "/tmp"} {
		dir, err := os.MkdirTemp(parent, "redis")
		if err != nil {
			t.Fatalf("redistest: %v", err)
		}
		if socket = filepath.Join(dir, "s"); len(socket) <= maxSocketPath {
			return dir, socket
		}
		_ = os.Remove(dir)
	}
	t.Fatalf("redistest: no directory short enough for a unix socket")
	return "", ""
}
