package locks

import (
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// group is a primary with its replicas and Sentinels.
type group struct {
	servers   []*redistest.Server
	sentinels *redistest.Sentinels
}

// never is the time after which Sentinels take a primary for down that has not been struck: a machine that stands still must not cause a
// failover, because what replication loses then would look like a lock that was granted twice.
const never = 10 * time.Minute

// ofProcesses are the faults that concern neither Redis nor the way to it.
func ofProcesses(all []fault) []fault {
	return slices.DeleteFunc(all, func(f fault) bool {
		return !strings.HasSuffix(f.name, "a worker") && !strings.HasSuffix(f.name, "a proxy")
	})
}

// demote makes a former primary a replica, as Sentinels do after some seconds. Until then it takes no writes.
func (s *stand) demote(old *redistest.Server) {
	at := hostPort(s.redis)
	s.do(old, "REPLICAOF", at[0], at[1])
	s.do(old, "CLIENT", "UNPAUSE") // Sentinels publish
}

func hostPort(of *redistest.Server) []string { return strings.Split(of.Addr(), ":") }

// do sends a command to a server that may close the connection.
func (s *stand) do(srv *redistest.Server, args ...any) {
	redistest.Eventually(s.t, patience, "an answer", func() bool { return srv.Client(s.t).Do(s.t.Context(), args...).Err() == nil })
}

// awaitReplicas returns when the primary has both replicas, and the Sentinels know so and would fail over. A failover that nobody asked for
// ends the test, because its losses would look like those of a lock.
func (s *stand) awaitReplicas() {
	if now := s.group.sentinels.Primary(); now != nil && now != s.redis {
		s.t.Fatalf("the Sentinels have made %s the primary by themselves; it was %s", now.Addr(), s.redis.Addr())
	}
	redistest.Eventually(s.t, 2*patience, "both replicas to be up", func() bool {
		return !slices.ContainsFunc(s.group.servers, func(one *redistest.Server) bool {
			return one != s.redis && (s.fact(one, "master_link_status") != "up" || s.fact(one, "master_port") != hostPort(s.redis)[1])
		}) && s.group.sentinels.Ready()
	})
}

// fact is a line of INFO replication.
func (s *stand) fact(of *redistest.Server, name string) string {
	text, _ := of.Client(s.t).Info(s.t.Context(), "replication").Result()
	_, after, _ := strings.Cut(text, name+":")
	value, _, _ := strings.Cut(after, "\r\n")
	return value
}
