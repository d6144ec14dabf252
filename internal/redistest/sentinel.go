package redistest

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Sentinels watch one primary and its replicas, and promote a replica if a majority of them finds the primary down.
// Each is a Server of its own: it can be killed, paused and restarted.
type Sentinels struct {
	// Name is the name under which they know the primary.
	Name string

	// All are the Sentinels, in no order. The caller must not change it.
	All []*Server

	// TLS are the addresses at which they serve TLS, with StartSentinelsTLS.
	TLS []string

	t       testing.TB
	servers []*Server // the primary and its replicas
}

// pace makes Sentinels look at the servers, and tell each other, more often than they do by themselves. It counts most
// that they connect again within the ping period: a promotion closes all connections of the promoted server, and its
// default of one second is as long as DownAfter. Then Sentinels may find the new primary down before they have
// connected to it, and fail over again and again. A shorter one makes their knowledge of replicas too old for a
// failover sooner. A Sentinel that had to wait for a processor for two seconds does nothing for some time, by default
// for 30 seconds. A Sentinel that is restarted has the defaults.
var pace = []any{
	"SENTINEL", "DEBUG", "PING-PERIOD", 500, "INFO-PERIOD", 1000, "PUBLISH-PERIOD", 500, "TILT-PERIOD", 1000,
}

// DownAfter is the time after which a Sentinel takes a silent primary for down.
const DownAfter = time.Second

// StartSentinels runs n Sentinels that watch a primary and its replicas under the name mymaster, and returns when all
// of them are ready to fail over. Options are lines of their file without the name: "down-after-milliseconds 500", or
// whole lines: "sentinel resolve-hostnames yes".
func StartSentinels(t testing.TB, n int, primary *Server, replicas []*Server, options ...string) *Sentinels {
	t.Helper()
	return StartSentinelsAt(t, Loopback, n, primary, replicas, options...)
}

// StartSentinelsAt is StartSentinels with all Sentinels at another place.
func StartSentinelsAt(
	t testing.TB, place Place, n int, primary *Server, replicas []*Server, options ...string,
) *Sentinels {
	t.Helper()
	s := &Sentinels{Name: "mymaster", t: t, servers: append([]*Server{primary}, replicas...)}
	for range n {
		s.All = append(s.All, newServer(t, place))
	}
	s.configure(options)
	for _, one := range s.All {
		one.launch(nil)
	}
	s.awaitComplete()
	return s
}

// configure writes the files of Sentinels that know nothing yet. Each has a new id.
func (s *Sentinels) configure(options []string) {
	s.t.Helper()
	ids := make([]string, len(s.All))
	for i := range ids {
		ids[i] = runID(s.t)
	}
	for i, one := range s.All {
		file := filepath.Join(one.dir, "sentinel.conf") // Sentinel rewrites it: no two may share it
		if err := os.WriteFile(file, []byte(s.file(i, ids, options)), 0o600); err != nil {
			s.t.Fatalf("redistest: %v", err)
		}
		one.conf = []string{file, "--sentinel"}
	}
}

func (s *Sentinels) awaitComplete() {
	s.t.Helper()
	for _, one := range s.All {
		one.Do(s.t, pace...)
		Eventually(s.t, startLimit, "a Sentinel to know all servers and Sentinels", func() bool { return s.complete(one) })
	}
}

// Anew replaces all Sentinels by others at the same addresses, which know of no failover yet. They watch a primary and
// its replicas.
func (s *Sentinels) Anew(primary *Server, replicas []*Server, options ...string) {
	s.t.Helper()
	for _, one := range s.All {
		one.Kill()
	}
	s.servers = append([]*Server{primary}, replicas...)
	s.configure(options)
	for _, one := range s.All {
		one.Restart()
	}
	s.awaitComplete()
}

// StartSentinelsTLS is StartSentinels with Sentinels that also serve TLS, with a certificate of a. Clients must show
// one as well.
func StartSentinelsTLS(
	t testing.TB, a *Authority, n int, primary *Server, replicas []*Server, options ...string,
) *Sentinels {
	t.Helper()
	cert, key := a.Issue(t, "sentinel")
	tls := []string{"tls-cert-file " + cert, "tls-key-file " + key, "tls-ca-cert-file " + a.File(), tlsPort}
	return StartSentinels(t, n, primary, replicas, append(tls, options...)...)
}

// tlsPort is the option that gives each Sentinel a port of its own for TLS.
const tlsPort = "tls-port"

// file is the configuration of Sentinel i, with all that it would find out by itself within seconds.
func (s *Sentinels) file(i int, ids, options []string) string {
	primary := s.servers[0]
	lines := []string{
		"sentinel myid " + ids[i],
		fmt.Sprintf("sentinel monitor %s %s %d %d", s.Name, primary.place.Host, primary.port, len(ids)/2+1),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", s.Name, DownAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s 3000", s.Name), // the next failover is twice that later at the earliest
	}
	if password := primary.password(); password != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", s.Name, password))
	}
	for _, replica := range s.servers[1:] {
		lines = append(lines, fmt.Sprintf("sentinel known-replica %s %s %d", s.Name, replica.place.Host, replica.port))
	}
	for j, other := range s.All {
		if j != i {
			lines = append(lines,
				fmt.Sprintf("sentinel known-sentinel %s %s %d %s", s.Name, other.place.Host, other.port, ids[j]))
		}
	}
	for _, option := range options {
		if option == tlsPort {
			port := Port(s.t)
			option = fmt.Sprint(tlsPort, " ", port)
			s.TLS = append(s.TLS, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		}
		key, value, _ := strings.Cut(option, " ")
		if ofItself.MatchString(key) {
			lines = append(lines, option)
			continue
		}
		lines = append(lines, fmt.Sprintf("sentinel %s %s %s", key, s.Name, value))
	}
	return strings.Join(lines, "\n") + "\n"
}

// ofItself matches the keys of options that are about the Sentinel itself.
var ofItself = regexp.MustCompile("^(sentinel($|-)|requirepass|tls-)")

// troubled are the flags of a server for which a Sentinel has something to do.
var troubled = regexp.MustCompile("disconnected|down|failover_in_progress")

// complete reports whether a Sentinel is connected with all servers and all other Sentinels, finds none of them down,
// and has no failover to finish: it would undo the next one.
func (s *Sentinels) complete(one *Server) bool {
	peers := slices.Concat(
		rows(one.Do(s.t, "SENTINEL", "REPLICAS", s.Name)), rows(one.Do(s.t, "SENTINEL", "SENTINELS", s.Name)))
	if len(peers) != len(s.servers)-1+len(s.All)-1 {
		return false
	}
	for _, row := range append(peers, fields(one.Do(s.t, "SENTINEL", "MASTER", s.Name))) {
		if troubled.MatchString(row["flags"]) || row["role-reported"] == "slave" && row["master-link-status"] != "ok" {
			return false
		}
	}
	return true
}

// URL is the address of the primary that they watch, for a proxy.
func (s *Sentinels) URL() string { return "sentinel://" + s.Addrs() + "/" + s.Name }

// Addrs are the addresses of the Sentinels, separated by commas.
func (s *Sentinels) Addrs() string {
	addrs := make([]string, len(s.All))
	for i, one := range s.All {
		addrs[i] = one.Addr()
	}
	return strings.Join(addrs, ",")
}

// Primary is the server that the Sentinels which run name as the primary; nil while they do not agree.
func (s *Sentinels) Primary() *Server {
	s.t.Helper()
	named := ""
	for _, one := range s.All {
		if !one.serves() {
			continue
		}
		reply, err := one.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name)
		pair, _ := reply.([]any)
		if err != nil || len(pair) != 2 {
			return nil
		}
		port, _ := pair[1].(string)
		if named != "" && named != port {
			return nil
		}
		named = port
	}
	for _, server := range s.servers {
		if strconv.Itoa(server.port) == named {
			return server
		}
	}
	return nil
}

// Ready reports whether all Sentinels are connected with all servers, find none of them down, and would fail over at
// once.
func (s *Sentinels) Ready() bool {
	s.t.Helper()
	for _, one := range s.All {
		if !s.complete(one) {
			return false
		}
	}
	return true
}

// Failover makes the Sentinels promote a replica although the primary is well, and returns the new primary when they
// agree on it.
func (s *Sentinels) Failover() *Server {
	s.t.Helper()
	before := s.Primary()
	s.BeginFailover()
	return s.AwaitOther(before)
}

// BeginFailover is Failover without the wait for its outcome.
func (s *Sentinels) BeginFailover() {
	s.t.Helper()
	err := errors.New("none runs")
	begin := func() bool {
		for _, one := range s.All {
			if !one.serves() {
				continue
			}
			if _, err = one.ask("SENTINEL", "FAILOVER", s.Name); err == nil {
				return true
			}
		}
		// After a pause, Sentinels trust no replica until they have heard of it.
		return !strings.HasPrefix(err.Error(), "NOGOODSLAVE")
	}
	Eventually(s.t, startLimit, "a replica that can be promoted", begin)
	if err != nil {
		s.t.Fatalf("redistest: no Sentinel fails over: %v", err)
	}
}

// AwaitOther returns the new primary when all Sentinels that run name a primary other than the given one.
func (s *Sentinels) AwaitOther(than *Server) *Server {
	s.t.Helper()
	var now *Server
	Eventually(s.t, startLimit, "the Sentinels to name another primary", func() bool {
		now = s.Primary()
		return now != nil && now != than
	})
	return now
}

// SetDownAfter changes the time after which the Sentinels take a silent primary for down.
func (s *Sentinels) SetDownAfter(d time.Duration) {
	s.t.Helper()
	for _, one := range s.All {
		one.Do(s.t, "SENTINEL", "SET", s.Name, "down-after-milliseconds", d.Milliseconds())
	}
}

func runID(t testing.TB) string {
	t.Helper()
	b := make([]byte, 20)
	if _, err := rand.Read(b); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return hex.EncodeToString(b)
}

func rows(reply any) []map[string]string {
	list, _ := reply.([]any)
	all := make([]map[string]string, 0, len(list))
	for _, row := range list {
		all = append(all, fields(row))
	}
	return all
}

// fields reads names and values that alternate.
func fields(reply any) map[string]string {
	list, _ := reply.([]any)
	row := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		row[name], _ = list[i+1].(string)
	}
	return row
}
