package lockcmds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

var (
	anyone = EngineID{}
	user   = EngineID{User: "u", Password: "p"}
)

// A registryWorld is the lock engines of one proxy.
type registryWorld struct {
	*Registry
	t   *testing.T
	srv *redistest.Server
	end func() // closes the registry
}

var registryProxies, sessions atomic.Uint64

// start makes a registry with four places.
func start(t *testing.T, srv *redistest.Server, idle time.Duration) *registryWorld {
	t.Helper()
	return startWith(t, srv, func(o *RegistryOptions) { o.Idle = idle })
}

func startWith(t *testing.T, srv *redistest.Server, change func(*RegistryOptions)) *registryWorld {
	t.Helper()
	srv.Do(t, "ACL", "SETUSER", user.User, "on", ">"+user.Password, "~*", "&*", "+@all")
	opts := RegistryOptions{
		Engine: Options{UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", registryProxies.Add(1))},
		Addr:   srv.Addr(),
		Connect: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
		},
		Max: 4, Idle: time.Minute, Logger: zap.NewNop(),
	}
	change(&opts)
	r, err := NewRegistry(opts)
	if err != nil {
		t.Fatal(err)
	}
	w := &registryWorld{Registry: r, t: t, srv: srv}
	w.end = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.end)
	return w
}

// join fails if there is no engine.
func (w *registryWorld) join(id EngineID, owner string) *IdentityEngine {
	w.t.Helper()
	e, err := w.Join(id, owner)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// session is a client of an engine until the test ends.
func (w *registryWorld) session(id EngineID) *locktest.Session {
	w.t.Helper()
	s := locktest.New(w.t, w.join(id, ""), sessions.Add(1), 3, locktest.NewLane(w.t, w.srv.Addr()))
	w.t.Cleanup(s.HangUp)
	return s
}

// takes sends an acquire that is granted at once.
func takes(t *testing.T, s *locktest.Session, line string) {
	t.Helper()
	s.Send(line)
	fenceIn(t, s.Next(patience))
}

func TestAnEngineIsOneIdentitys(t *testing.T) {
	w := start(t, redistest.Start(t), time.Hour)
	ids := []EngineID{anyone, user, {DB: 3}}
	seen := map[*IdentityEngine]bool{}
	for _, id := range ids {
		e := w.join(id, id.User)
		if seen[e] || e.ID() != id {
			t.Errorf("%v has the engine of %v", id, e.ID())
		}
		seen[e] = true
		if w.join(id, "another address") != e {
			t.Errorf("%v has two engines", id)
		}
	}
	if n := len(w.all()); n != len(ids) {
		t.Errorf("%d engines", n)
	}
}

// An engine has two connections to Redis, so there are few, and the clients of one address open three quarters of them
// at most.
func TestEnginesAreBounded(t *testing.T) {
	w := start(t, redistest.Start(t), time.Hour)
	var greedy []*IdentityEngine
	for db := range 3 {
		greedy = append(greedy, w.join(EngineID{DB: db}, "greedy"))
	}
	if _, err := w.Join(EngineID{DB: 3}, "greedy"); !errors.Is(err, ErrFull) {
		t.Errorf("a fourth engine of one address: %v", err)
	}
	w.join(EngineID{DB: 4}, "other")
	if _, err := w.Join(EngineID{DB: 5}, "third"); !errors.Is(err, ErrFull) {
		t.Errorf("a fifth engine: %v", err)
	}
	w.Leave(greedy[1])
	if w.join(EngineID{DB: 1}, "greedy") != greedy[1] {
		t.Error("an unused engine was not used again")
	}
	if _, err := w.Join(EngineID{DB: 5}, "third"); !errors.Is(err, ErrFull) {
		t.Errorf("an engine that is used again lost its place: %v", err)
	}
	w.Leave(greedy[1])
	w.join(EngineID{DB: 5}, "third")
	if n := len(w.all()); n != 4 {
		t.Errorf("%d engines", n)
	}
	if _, err := w.Join(EngineID{DB: 1}, "greedy"); !errors.Is(err, ErrFull) {
		t.Errorf("the engine that made room is still there: %v", err)
	}
}

// An unused engine whose clean-up is on its way keeps its place until that is done.
func TestAnEngineWithWorkKeepsItsPlace(t *testing.T) {
	w := start(t, redistest.Start(t), time.Hour)
	s := w.session(anyone)
	takes(t, s, "LOCK k GRACE 0")
	busy := w.join(anyone, "")
	w.Leave(busy)
	for db := 1; db <= 3; db++ {
		w.join(EngineID{DB: db}, fmt.Sprint(db))
	}
	w.srv.Pause()
	s.HangUp()
	w.Leave(busy) // for the session
	if _, err := w.Join(user, "new"); !errors.Is(err, ErrFull) {
		t.Errorf("an engine with work was ended: %v", err)
	}
	w.srv.Continue()
	redistest.Eventually(t, patience, "a place", func() bool { _, err := w.Join(user, "new"); return err == nil })
	if n := w.srv.Client(t).Exists(t.Context(), "k").Val(); n != 0 {
		t.Error("the lock was not released")
	}
}

func TestAnUnusedEngineIsDroppedAfterAWhile(t *testing.T) {
	w := start(t, redistest.Start(t), 100*time.Millisecond)
	again, leaves := w.join(anyone, ""), w.join(user, "")
	w.Leave(again)
	again = w.join(anyone, "") // another one if the machine has stood still
	w.Leave(leaves)            // its time is over after that of the one that is used again
	redistest.Eventually(t, patience, "the end of one engine", func() bool { return len(w.all()) == 1 })
	if w.join(anyone, "") != again {
		t.Error("an engine was dropped that a session uses")
	}
	if w.join(user, "") == leaves {
		t.Error("a dropped engine is used again")
	}
}

func TestNoEngineAfterClose(t *testing.T) {
	w := start(t, redistest.Start(t), time.Hour)
	w.join(anyone, "")
	w.end()
	if _, err := w.Join(user, ""); !errors.Is(err, ErrClosed) {
		t.Errorf("Join = %v", err)
	}
}

// All engines refuse waiters when the proxy drains, also those that begin later.
func TestDrainReachesLaterEngines(t *testing.T) {
	w := start(t, redistest.Start(t), time.Hour)
	holder, before := w.session(anyone), w.session(anyone)
	takes(t, holder, "LOCK k")
	before.Send("LOCK k")
	redistest.Eventually(t, patience, "a waiter", func() bool { return w.Waiting() == 1 })
	w.Drain()
	after := w.session(user)
	after.Send("LOCK k")
	for _, s := range []*locktest.Session{before, after} {
		if got := s.Next(patience); !strings.HasPrefix(got, "-OVERLOADED ") {
			t.Errorf("a waiter of a proxy that drains: %s", got)
		}
	}
	if n := w.Waiting(); n != 0 {
		t.Errorf("%d clients wait", n)
	}
}

// The holder learns that its lock was ended by force, whichever engine did it.
func TestAForcedEndReachesTheOtherEngines(t *testing.T) {
	w := start(t, redistest.Start(t), time.Hour)
	holder, elsewhere := w.session(anyone), w.session(EngineID{DB: 3})
	takes(t, holder, "LOCK k")
	takes(t, elsewhere, "LOCK other") // an engine of another database
	operator := w.session(user)
	operator.Send("FORCEUNLOCK k")
	if got := operator.Next(patience); got != ":1" {
		t.Errorf("FORCEUNLOCK is answered %s", got)
	}
	if got := holder.NextPush(patience); !strings.Contains(got, "lock-lost k") || !strings.HasSuffix(got, "forced]") {
		t.Errorf("the holder was told %s", got)
	}
	redistest.Eventually(t, patience, "the end of the hold", func() bool { return w.Held() == 1 }) // of the other lock
}

// Operators see a lock once, with its holder and the waiters of all engines.
func TestLocksAreSeenWithTheWaitersOfAllEngines(t *testing.T) {
	srv := redistest.Start(t)
	w, foreign := start(t, srv, time.Hour), start(t, srv, time.Hour)
	if !w.OldestWait().IsZero() {
		t.Error("nobody waits")
	}
	elsewhere := foreign.session(anyone)
	takes(t, elsewhere, "LOCK theirs PX 60000")
	holder := w.session(anyone)
	takes(t, holder, "LOCK ours")
	takes(t, holder, "LOCK alone")
	begin := time.Now()
	for i, c := range []struct {
		id   EngineID
		line string
	}{{user, "LOCK ours"}, {user, "FAIRLOCK theirs"}, {anyone, "LOCK theirs"}, {anyone, "FAIRLOCK ours"}} {
		w.session(c.id).Send(c.line)
		redistest.Eventually(t, patience, c.line, func() bool { return w.Waiting() == i+1 })
	}
	locks := map[string]Lock{}
	w.Each(func(l Lock) {
		if _, twice := locks[l.Key]; twice {
			t.Errorf("%s was seen twice", l.Key)
		}
		locks[l.Key] = l
	})
	for key, want := range map[string]string{"ours": "held by the user : 2 waiters, 1 fair", "alone": "held by the user : 0 waiters, 0 fair", "theirs": "2 waiters, 1 fair"} {
		l := locks[key]
		got := fmt.Sprintf("%d waiters, %d fair", l.Waiters, l.Fair)
		if l.Held {
			got = fmt.Sprintf("held by the user %s: %s", l.User, got)
		}
		if got != want || (l.Waiters > 0) == l.Oldest.IsZero() {
			t.Errorf("%s: %s since %v, want %s", key, got, l.Oldest, want)
		}
	}
	if oldest := w.OldestWait(); oldest.Before(begin) || !oldest.Equal(locks["ours"].Oldest) || !oldest.Before(locks["theirs"].Oldest) {
		t.Errorf("the oldest wait: %v", oldest)
	}
	if len(locks) != 3 || w.Held() != 2 {
		t.Errorf("%d locks, %d held", len(locks), w.Held())
	}
	var listed []string
	for _, h := range w.List(10) {
		listed = append(listed, h.Key)
	}
	if slices.Sort(listed); !slices.Equal(listed, []string{"alone", "ours"}) || len(w.List(1)) != 1 {
		t.Errorf("the list has %v", listed)
	}
	theirs := locks["theirs"]
	at, err := theirs.Describe(t.Context())
	if err != nil || len(at.Holders) != 1 || !strings.HasPrefix(at.Holders[0].Owner, "00000000-0000-4000-8000-") {
		t.Errorf("the holder of a foreign lock: %+v, %v", at, err)
	}
}
