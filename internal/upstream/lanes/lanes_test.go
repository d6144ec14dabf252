package lanes

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A redis is where a server is; without an address it cannot be reached.
type redis struct {
	mu    sync.Mutex
	addr  string
	asked int // attempts to connect
}

func (r *redis) Resolve(topology.Node) (topology.Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.addr == "" {
		return topology.Place{}, errors.New("away")
	}
	return topology.Place{Network: "tcp", Address: r.addr}, nil
}

func (*redis) Doubt(string) {}

// turn has further attempts go to an address.
func (r *redis) turn(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addr = addr
}

func (r *redis) attempts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

// A world is Lanes with the events that they have told.
type world struct {
	*Lanes
	wg      sync.WaitGroup
	entries *observer.ObservedLogs

	mu    sync.Mutex
	own   dial.Identity // the proxy's
	told  []string      // of all lanes
	stuck []topology.Node
}

func start(t *testing.T, size int, at *redis) *world {
	t.Helper()
	core, entries := observer.New(zap.DebugLevel)
	w, stop := &world{entries: entries}, make(chan struct{})
	dialer := dial.New(dial.Options{Resolver: at, Timeout: 10 * time.Second, KeepAlive: time.Minute, Spawn: w.wg.Go, Stop: stop})
	w.Lanes = New(Options{
		Size: size, Dialer: dialer, Logger: zap.New(core), Spawn: w.wg.Go,
		Entries: logging.NewRepeats(zap.New(core), 5, time.Hour),
		Own: func(id dial.Identity) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return id.Authenticated() && id == w.own
		},
		Free: func(id dial.Identity) bool { return id.DB == 0 && !id.Authenticated() },
		Events: Events{
			Connected: func(_ dial.Target, _ string, again bool) {
				w.note(map[bool]string{false: "connected", true: "connected again"}[again])
			},
			Failed: func(dial.Target, error, bool) { w.note("failed") }, Lost: func(dial.Target) { w.note("lost") },
			Stuck: func(at topology.Node) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.stuck = append(w.stuck, at)
			},
		},
	})
	t.Cleanup(func() {
		close(stop)
		w.Close()
		w.wg.Wait()
		w.opts.Entries.Flush()
	})
	return w
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told == nil || w.told[len(w.told)-1] != what { // however many attempts fail
		w.told = append(w.told, what)
	}
}

func (w *world) events() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.told, ", ")
}

// in is a client without credentials in a database.
func in(db int) dial.Identity { return dial.Identity{DB: db, Proto: 2} }

func (w *world) lane(id dial.Identity, owner string) *Lane {
	return w.Lane(id, topology.Any, nil, owner, Reads)
}

// ended reports whether a lane has been closed.
func ended(l *Lane) bool {
	return errors.Is(l.Append(resp.AppendCommand(nil, "PING"), &client{}, 0, 1), stream.ErrDown)
}

func TestSessionsOfOneIdentityShareALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 4, &redis{})
		a, b, other := w.lane(in(0), ""), w.lane(in(0), ""), w.lane(in(1), "")
		if a != b || a == other {
			t.Error("a lane is one identity's")
		}
		if elsewhere := w.Lane(in(0), "another server", nil, "", Reads); elsewhere == a || elsewhere.At() != "another server" {
			t.Error("a lane leads to one server")
		}
		if w.Join(in(0), topology.Any, nil) != nil {
			t.Error("Join returns a lane that is not connected")
		}
		uses := map[string]int{}
		for _, l := range w.List() {
			uses[l.Use]++
		}
		if uses["all"] != 3 || uses["spare"] != 1 || len(uses) != 2 { // an identity with two sessions has a spare lane
			t.Errorf("the lanes are %v", uses)
		}
	})
}

// One address has three quarters of the places at most, and identities that need no place always get a lane.
func TestPlacesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 4, &redis{})
		for db := 1; db <= 3; db++ {
			if w.lane(in(db), "greedy").Full() {
				t.Fatalf("no place for database %d", db)
			}
		}
		full := w.lane(in(4), "greedy")
		if !full.Full() || !ended(full) || w.HasPlace(in(4), topology.Any, nil, "greedy") {
			t.Error("one address has all places")
		}
		if !full.Hopeless() || full.At() != topology.Any || full.Identity() != in(4) {
			t.Errorf("a lane without a place: to %s as %v, hopeless: %v", full.At(), full.Identity(), full.Hopeless())
		}
		w.Leave(full)
		if w.lane(in(3), "greedy").Full() || !w.HasPlace(in(3), topology.Any, nil, "greedy") {
			t.Error("a lane that exists needs no further place")
		}
		if !w.HasPlace(in(5), topology.Any, nil, "other") || w.lane(in(5), "other").Full() {
			t.Error("another address has no place")
		}
		if !w.lane(in(6), "third").Full() {
			t.Error("more sets than places")
		}
		if w.lane(in(0), "greedy").Full() {
			t.Error("an identity that needs no place was refused")
		}
	})
}

func TestAnUnusedLaneMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 4, &redis{})
		var list []*Lane
		for db := 1; db <= 3; db++ {
			list = append(list, w.lane(in(db), "greedy"))
		}
		w.Leave(list[1])
		if w.lane(in(2), "greedy") != list[1] {
			t.Error("an unused lane was not used again")
		}
		if !w.lane(in(7), "greedy").Full() {
			t.Error("a lane that is used again lost its place")
		}
		w.Leave(list[1])
		if !w.HasPlace(in(7), topology.Any, nil, "greedy") || w.lane(in(7), "greedy").Full() {
			t.Error("an unused lane keeps its place")
		}
		synctest.Wait()
		if !ended(list[1]) || ended(list[0]) || ended(list[2]) {
			t.Error("another lane than the unused one was closed")
		}
	})
}

// A client that moves from identity to identity leaves few lanes behind.
func TestFewUnusedLanesOfOneAddressAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 64, &redis{}) // 16 may be unused, 4 of one address
		for db := 1; db <= 40; db++ {
			w.Leave(w.lane(in(db), "wanderer"))
		}
		if n := len(w.List()); n != 4 {
			t.Errorf("%d lanes of one address are left, want 4", n)
		}
		for i := range 40 {
			w.Leave(w.lane(in(100+i), string(rune('a'+i))))
		}
		if n := len(w.List()); n != 16 {
			t.Errorf("%d unused lanes, want 16", n)
		}
	})
}

// Sessions keep their lane when Redis has begun to demand credentials. New ones get another.
func TestDroppedLanesServeTheirSessionsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 4, &redis{})
		user := dial.Identity{User: "u", Password: "p", Proto: 2}
		used, idle, named := w.lane(in(0), ""), w.lane(in(1), "x"), w.lane(user, "x")
		w.Leave(idle)
		w.DropBare()
		synctest.Wait()
		if !ended(idle) || ended(used) || ended(named) {
			t.Error("the unused lane without credentials is to be closed, and no other")
		}
		if next := w.lane(in(0), ""); next == used {
			t.Error("a new session gets the lane of before")
		}
		if w.lane(user, "x") != named {
			t.Error("a lane with credentials was dropped")
		}
		if w.Move(used, Writes) != used {
			t.Error("a session was moved to a lane with other rights")
		}
		w.Leave(used)
		synctest.Wait()
		if !ended(used) {
			t.Error("the lane is open after its last session has left")
		}
		if _, left := w.lanes[used]; left {
			t.Error("a closed lane is remembered")
		}
	})
}

func TestLanesToAServerThatIsGoneEndWhenTheyAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 4, &redis{})
		used := w.Lane(in(0), "gone", nil, "", Reads)
		idle := w.Lane(in(0), "gone", nil, "", Scripts)
		stays := w.Lane(in(0), "stays", nil, "", Reads)
		w.Leave(idle)
		gone := func(at topology.Node) bool { return at == "gone" }
		if left := w.DropAt(gone); len(left) != 1 || left[0] != "gone" {
			t.Errorf("lanes are used at %v", left)
		}
		synctest.Wait()
		if ended(used) || !ended(idle) || ended(stays) {
			t.Error("at once, the unused lane ends alone")
		}
		if left := w.DropAt(gone); len(left) != 1 { // the server was back in between
			t.Errorf("lanes are used at %v", left)
		}
		w.EndAt("gone")
		synctest.Wait()
		if !ended(used) || ended(stays) {
			t.Error("in the end, all lanes to the server end, and no other")
		}
		w.Leave(used)
		if left := w.DropAt(gone); len(left) != 0 {
			t.Errorf("lanes are used at %v", left)
		}
	})
}

func TestLanesThatNoSessionUsesAreTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 4, &redis{})
		idle, used := w.lane(in(1), "x"), w.lane(in(2), "x")
		scripts := w.Lane(in(2), topology.Any, nil, "x", Scripts)
		w.Leave(scripts)
		w.Leave(idle)
		before := time.Now()
		time.Sleep(time.Minute)
		if inUse := w.Trim(before); len(inUse) != 1 || !inUse[dial.Target{At: topology.Any, ID: in(2)}] {
			t.Errorf("%v are in use", inUse)
		}
		if synctest.Wait(); ended(idle) {
			t.Error("a lane was closed before its time")
		}
		w.Trim(time.Now())
		synctest.Wait()
		if !ended(idle) || ended(used) || ended(scripts) {
			t.Error("the lanes of the identity without sessions are to be closed, and no other: scripts have their lane")
		}
		if !w.HasPlace(in(9), topology.Any, nil, "x") {
			t.Error("the place is not free")
		}
	})
}

func TestNoLaneAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 4, &redis{})
		before := w.lane(in(0), "")
		w.Close()
		synctest.Wait()
		after := w.lane(in(1), "x")
		if !ended(before) || !ended(after) || after.Full() || after.Hopeless() {
			t.Errorf("after Close: %v %v; no place: %v", ended(before), ended(after), after.Full())
		}
		w.Leave(before)
		w.Leave(after)
	})
}

// A lane that stands still is set aside: its sessions move to another one, and the owner of the view of a cluster is
// told.
func TestALaneThatStandsStillIsLeft(t *testing.T) {
	srv := redistest.Start(t)
	w := start(t, 4, &redis{addr: srv.Addr()})
	l, second := w.lane(in(0), ""), w.lane(in(0), "")
	redistest.Eventually(t, 10*time.Second, "the lane is connected", func() bool { return l == second && l.IsUp() })
	if l.Unsettled() || w.Move(l, Reads) != l {
		t.Fatal("a lane without commands is to be left")
	}
	begin := time.Now()
	srv.Pause()
	outcome := send(l, "PING")
	redistest.Eventually(t, 10*time.Second, "the lane is set aside", func() bool { return l.Unsettled() })
	next := w.Move(second, Reads)
	if next == l {
		t.Error("Move returns the lane that stands still")
	}
	if aside, lost := w.Counts(); aside != 1 || lost != 0 {
		t.Errorf("%d lanes set aside, %d lost", aside, lost)
	}
	srv.Continue()
	await(t, "the answer", outcome, "+PONG\r\n")
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.stuck); n == 0 || n > 1+int(time.Since(begin)/stuckPeriod) || w.stuck[0] != topology.Any {
		t.Errorf("Stuck was told %d times", n)
	}
}

// Redis holds back the writes of 5 clients on one lane: it counts one.
func TestClientsWhoseWritesAreHeldBackAreCounted(t *testing.T) {
	srv := redistest.Start(t)
	w := start(t, 4, &redis{addr: srv.Addr()})
	w.lane(in(0), "") // the set is there before the pause
	if w.HeldBack() != 0 {
		t.Error("no pause is known")
	}
	w.Paused(time.Now().Add(time.Minute))
	var writers []*Lane
	for range 5 {
		writers = append(writers, w.Lane(in(0), topology.Any, nil, "", Writes))
	}
	if reads := w.lane(in(0), ""); reads == writers[0] {
		t.Error("reads share the lane with writes that are held back")
	}
	redistest.Eventually(t, 10*time.Second, "the lane is connected", func() bool { return writers[0].IsUp() })
	srv.Do(t, "CLIENT", "PAUSE", "60000", "WRITE")
	var last func() string
	for _, l := range writers {
		last = send(l, "INCR", "n")
	}
	if n := w.HeldBack(); n != 4 {
		t.Errorf("%d clients beyond those that Redis counts, want 4", n)
	}
	srv.Do(t, "CLIENT", "UNPAUSE")
	w.Paused(time.Time{})
	await(t, "the answers", last, ":5\r\n")
	if n := w.HeldBack(); n != 0 {
		t.Errorf("%d clients after the pause", n)
	}
}

// A client whose credentials are refused is told at once, and the next one has Redis asked again.
func TestALaneWithWrongCredentialsIsReplaced(t *testing.T) {
	w := start(t, 4, &redis{addr: redistest.Start(t).Addr()})
	id := dial.Identity{User: "u", Password: "wrong", Proto: 2}
	l := w.lane(id, "x")
	redistest.Eventually(t, 10*time.Second, "the refusal", func() bool { return ended(l) })
	if !l.Rejected() || !l.Hopeless() {
		t.Error("the lane does not say that Redis has refused the credentials")
	}
	next := w.lane(id, "x")
	if next == l {
		t.Error("a new session gets the lane whose credentials were refused")
	}
	w.Leave(l)
	w.Leave(next)
	redistest.Eventually(t, 10*time.Second, "no lane", func() bool { return len(w.List()) == 0 })
	if w.places.taken.Taken() != 0 {
		t.Error("the place is not free")
	}
}

// Redis may refuse one lane of an identity, and not the other: the password was changed between the two.
func TestSessionsAreNotMovedToARejectedLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, 4, &redis{})
		id := dial.Identity{User: "u", Password: "p", Proto: 2}
		l, scripts := w.lane(id, "x"), w.Lane(id, topology.Any, nil, "x", Scripts)
		l.set.reject(l)
		if w.Move(l, Reads) != l {
			t.Error("a session of the rejected lane learns nothing of the refusal")
		}
		if w.lane(id, "x") == l || w.Lane(id, topology.Any, nil, "x", Scripts) != scripts {
			t.Error("the rejected lane is to be replaced, and no other")
		}
	})
}
