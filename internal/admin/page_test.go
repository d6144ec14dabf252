package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// read is a document of the admin server.
func read[T any](s *stand, path string) (v T) {
	s.t.Helper()
	status, body := s.get(path)
	if status != http.StatusOK {
		s.t.Fatalf("%s: %d %s", path, status, body)
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		s.t.Fatalf("%s: %v in %s", path, err, body)
	}
	return v
}

func (s *stand) locks(q string) Locks     { return read[Locks](s, "/locks?"+q) }
func (s *stand) clients(q string) Clients { return read[Clients](s, "/clients?"+q) }

// send sends a command whose reply may take long.
func send(t *testing.T, nc io.Writer, command string) {
	t.Helper()
	if _, err := nc.Write(resp.AppendCommand(nil, strings.Fields(command)...)); err != nil {
		t.Fatal(err)
	}
}

// One line for each lock that is held or waited for, wherever its holder is; its owner's name is enough to release it
// and stays secret.
func TestLocksAreShownWhereverTheirHolderIs(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	here := s.client("CLIENT SETNAME worker-7", "LOCK here")
	s.client("LOCK fixed PX 50000 OWNER secret-owner", "LOCK fixed PX 50000 OWNER secret-owner")
	gone := s.client("LOCK gone")
	other := "0e9e6f0a-6a5c-4f3e-9c55-0b3c7a1d2e4f"
	s.redis.Do(t, "HSET", "elsewhere", other+":42", "1")
	s.redis.Do(t, "PEXPIRE", "elsewhere", "40000")
	s.redis.Do(t, "HSET", "named", "somebody's name", "1")
	waiters := map[string]io.Writer{}
	waiting := []string{"here", "gone", "elsewhere", "named", "here"}
	for i, key := range waiting {
		nc := s.client("CLIENT SETNAME waiter-" + key)
		verb := "LOCK "
		if i == 4 {
			verb = "FAIRLOCK "
		}
		send(t, nc, verb+key)
		waiters[key] = nc
	}
	gone.Close()
	want := map[string]string{"here": "here", "fixed": "here", "gone": "gone", "elsewhere": "elsewhere", "named": "named"}
	redistest.Eventually(t, 10*time.Second, "all locks to be shown", func() bool {
		got, waits := map[string]string{}, 0
		answer := s.locks("")
		for _, l := range answer.Rows {
			got[l.Key] = l.Holder
			waits += l.Waiters
		}
		return fmt.Sprint(got) == fmt.Sprint(want) && answer.Contended == 4 && answer.Held == 2 && answer.Matching == 5 &&
			waits == len(waiting)
	})
	rows := map[string]Lock{}
	for _, l := range s.locks("").Rows {
		rows[l.Key] = l
	}
	if l := rows["here"]; l.Client != here.LocalAddr().String() || l.Name != "worker-7" || l.Waiters != 2 || l.Fair != 1 || l.Waiting < 0 || l.Held < 0 ||
		l.Renewal != renewed || l.Fence == 0 || l.LeaseLeft <= 10 || l.LeaseLeft > 30 {
		t.Errorf("here: %+v", l)
	}
	if l := rows["fixed"]; l.Renewal != fixed || l.Holds != 2 || l.Waiters != 0 || l.Waiting != -1 || l.LeaseLeft <= 30 || l.LeaseLeft > 50 {
		t.Errorf("fixed: %+v", l)
	}
	if l := rows["elsewhere"]; l.Process != other || l.LeaseLeft <= 30 || l.LeaseLeft > 40 || l.Held != -1 || l.Waiters != 1 {
		t.Errorf("elsewhere: %+v", l)
	}
	if l := rows["gone"]; l.Held < 0 {
		t.Errorf("gone: %+v", l)
	}
	if l := rows["named"]; l.LeaseLeft != -1 {
		t.Errorf("named: %+v", l)
	}
	if _, body := s.get("/locks"); strings.Contains(body, "secret-owner") || strings.Contains(body, "somebody") || strings.Contains(body, s.locks("").UUID+":") {
		t.Errorf("an owner is shown: %s", body)
	}

	if keys := strings.Fields(s.keys("only=orphaned")); !slices.Equal(slices.Sorted(slices.Values(keys)), []string{"elsewhere", "gone", "named"}) {
		t.Errorf("orphaned: %q", keys)
	}
	if keys := s.keys("only=held"); keys != "here fixed" {
		t.Errorf("held: %s", keys)
	}
	if keys := s.keys("search=WORKER"); keys != "here" {
		t.Errorf("by the holder's name: %s", keys)
	}
	if keys := s.keys(""); !strings.HasSuffix(keys, "fixed") {
		t.Errorf("without a wait it is the last: %s", keys)
	}
	for _, c := range s.clients("only=waiting").Rows {
		if "waiter-"+c.WaitsFor != c.Name || c.Waiting < 0 || c.State != "lock" {
			t.Errorf("client %+v", c)
		}
	}
	if c := s.clients("only=waiting&search=named"); len(c.Rows) != 1 || c.Waiting != 5 || c.Matching != 1 {
		t.Errorf("clients: %+v", c)
	}
}

// A shared lock has a row for each hold of a client here. Of holders elsewhere it has one row with their number.
func TestEachSharedHoldIsShown(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.client("LOCK pool LIMIT 3", "LOCK pool LIMIT 3").Close() // these permits go on for a lease
	s.client("LOCK permits LIMIT 3", "LOCK permits LIMIT 3")
	if permits := s.locks("search=permits").Rows; len(permits) != 2 || permits[0].Mode != "limit" || permits[0].Fence >= permits[1].Fence {
		t.Errorf("%+v", permits)
	}
	send(t, s.client(), "LOCK pool LIMIT 1")
	redistest.Eventually(t, 10*time.Second, "one to wait", func() bool { return s.locks("").Contended == 1 })
	if l := s.locks("search=pool").Rows; len(l) != 1 || l[0].Mode != "limit" || l[0].Holders != 2 || l[0].Holder != holderGone {
		t.Errorf("%+v", l)
	}
	s.client("LOCK k SHARED")
	s.client("LOCK k SHARED")
	s.client("LOCK alone")
	send(t, s.client(), "LOCK k")
	one, other := "0e9e6f0a-6a5c-4f3e-9c55-0b3c7a1d2e4f", "1e9e6f0a-6a5c-4f3e-9c55-0b3c7a1d2e4f"
	s.redis.Do(t, "HSET", "away", "mode", "read", one+":1", "1", "{"+one+":1}", "#1795159915417989 3", other+":1", "1")
	s.redis.Do(t, "PEXPIRE", "away", "40000")
	for _, owner := range []string{one, other} {
		s.redis.Do(t, "SET", "{away}:"+owner+":1:rwlock_timeout:1", "1", "PX", "20000")
	}
	send(t, s.client(), "LOCK away")
	redistest.Eventually(t, 10*time.Second, "all to wait", func() bool { return s.locks("").Contended == 3 })
	answer := s.locks("search=k")
	rows := answer.Rows
	if len(rows) != 2 || answer.Held != 5 || answer.Contended != 3 {
		t.Fatalf("%+v", answer)
	}
	for _, l := range rows {
		if l.Mode != "shared" || l.Holder != holderHere || l.Waiters != 1 || l.Holders != 0 || l.Client == "" {
			t.Errorf("%+v", l)
		}
	}
	if rows[0].Fence >= rows[1].Fence || rows[0].Client == rows[1].Client {
		t.Errorf("%+v", rows)
	}
	if l := s.locks("search=alone").Rows[0]; l.Mode != "exclusive" {
		t.Errorf("%+v", l)
	}
	if l := s.locks("search=away").Rows[0]; l.Mode != "shared" || l.Holders != 2 || l.Holder != holderElsewhere || l.LeaseLeft < 1 || l.LeaseLeft > 20 {
		t.Errorf("%+v", l)
	}
	if held := s.metric(`lockproxy_locks_held{mode="shared"}`); held != "2" {
		t.Errorf("%s shared holds", held)
	}
}

// keys are those of a table of locks.
func (s *stand) keys(q string) string {
	s.t.Helper()
	var keys []string
	for _, l := range s.locks(q).Rows {
		keys = append(keys, l.Key)
	}
	return strings.Join(keys, " ")
}

func TestClientsAreShown(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	if c, l := s.clients(""), s.locks(""); c.Matching != 0 || l.Matching != 0 || c.Rows == nil || l.Rows == nil {
		t.Errorf("of an idle proxy: %+v %+v", c, l)
	}
	nc := s.client("CLIENT SETNAME <script>", "SELECT 3", "MULTI")
	rows := s.clients("only=pinned").Rows
	if len(rows) != 1 || rows[0].Address != nc.LocalAddr().String() || rows[0].Name != "<script>" || rows[0].Pin != "multi" || rows[0].Identity != "(no login) db3 resp2" {
		t.Errorf("%+v", rows)
	}
	if c, l := s.clients(""), s.locks(""); c.Version != "1.2.3" || !c.Upstream || c.Draining || c.Uptime <= 0 || c.UUID == "" || l.UUID != c.UUID {
		t.Errorf("%+v, %+v", c, l)
	}
	s.redis.Do(t, "CLIENT", "PAUSE", "60000", "WRITE")
	send(t, s.client("PING"), "SET k v")
	redistest.Eventually(t, 10*time.Second, "a lane that stands still", func() bool {
		rows := s.clients("only=unanswered").Rows
		return len(rows) == 1 && rows[0].SetAside
	})
	s.redis.Do(t, "CLIENT", "UNPAUSE")
}

// What a table does not know is refused: a filter that does nothing would show other rows than are meant.
func TestUnknownQueriesAreRefused(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	for _, bad := range []string{
		"/locks?sort=key", "/locks?limit=1", "/locks?only=mine", "/clients?only=held", "/locks?x=1", "/hot?lock=k",
		"/locks?search=" + strings.Repeat("x", 1025),
	} {
		if status, body := s.get(bad); status != http.StatusBadRequest {
			t.Errorf("%.40s: %d %s", bad, status, body)
		}
	}
}
