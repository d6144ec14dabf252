package lockcmds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A server has grants, and replicas that have everything. It is the Server and its only connection. A WAIT for more
// replicas than there are takes all of its time, or until the context ends.
type server struct {
	mu       sync.Mutex
	replicas int
	gone     map[string]bool   // locks whose grants it does not have
	says     map[string]string // its refusals, by lock
	err      error             // of all questions
	mute     bool              // it does not answer
	writes   [][]string        // the locks of each round
	limits   []time.Duration   // of the first WAIT of each
	during   func()            // happens while a round is on its way, once
}

// do changes the server.
func (s *server) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *server) Confirm(f func(redislink.Confirmation) error) error {
	s.mu.Lock()
	err := s.err
	if err != nil {
		s.writes, s.limits = append(s.writes, nil), append(s.limits, 0)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return f(s)
}

func (s *server) Write(
	ctx context.Context, calls []redislink.Call, replicas int, limit time.Duration,
) (answers []resp.Value, have int, err error) {
	s.mu.Lock()
	var locks []string
	for _, c := range calls {
		k := c.Keys[0]
		locks = append(locks, k)
		switch text := s.says[k]; {
		case text != "":
			answers = append(answers, locktest.Refusal(text))
		case s.gone[k]:
			answers = append(answers, locktest.Numbers(0))
		default:
			answers = append(answers, locktest.Numbers(1))
		}
	}
	s.writes, s.limits = append(s.writes, locks), append(s.limits, limit)
	during := s.during
	s.during = nil
	s.mu.Unlock()
	if during != nil {
		during()
	}
	have, err = s.Wait(ctx, replicas, limit)
	return answers, have, err
}

func (s *server) Wait(ctx context.Context, replicas int, limit time.Duration) (have int, err error) {
	for end := time.Now().Add(limit); ; {
		s.mu.Lock()
		have, mute := s.replicas, s.mute
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return 0, redislink.ErrInDoubt
		case !mute && (have >= replicas || !time.Now().Before(end)):
			return have, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// rounds are the locks of each round.
func (s *server) rounds() string {
	var all []string
	for _, locks := range s.writes {
		all = append(all, strings.Join(locks, " "))
	}
	return strings.Join(all, " | ")
}

// A confirmNode is where the lock of a grant is.
type confirmNode struct {
	redislink.Node
	mu sync.Mutex
	at *server
}

func (n *confirmNode) Server() redislink.Server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at
}

// A confirmWorld is a confirmer in virtual time. It runs the jobs, each on a goroutine.
type confirmWorld struct {
	*confirmer
	wg    sync.WaitGroup
	begin time.Time
	open  chan struct{} // closed by settle: the first round has all grants before it

	mu       sync.Mutex
	outcomes map[string]string // by lock
}

func (w *confirmWorld) Submit(_ jobs.Class, job func()) {
	w.wg.Go(func() {
		<-w.open
		job()
	})
}

func (w *confirmWorld) After(d time.Duration, c jobs.Class, job func()) jobs.Timer {
	return time.AfterFunc(d, func() { w.Submit(c, job) })
}

func (w *confirmWorld) Wait(context.Context) {}

// play runs a test in virtual time.
func play(t *testing.T, f func(t *testing.T, w *confirmWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &confirmWorld{begin: time.Now(), open: make(chan struct{}), outcomes: map[string]string{}}
		w.confirmer = newConfirmer(t.Context(), w, jobs.System{})
		f(t, w)
		w.Close()
	})
}

func newServer(replicas int) *server {
	return &server{replicas: replicas, gone: map[string]bool{}, says: map[string]string{}}
}

// settle returns when no grant waits, or after a minute: then outcomes are missing.
func (w *confirmWorld) settle() {
	close(w.open)
	for w.Busy() && time.Since(w.begin) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	synctest.Wait()
}

// grant asks for a grant whose client waits for that long.
func (w *confirmWorld) grant(at redislink.Node, lock string, replicas int, wait time.Duration) {
	proof := script.Prove{Key: lock, Part: script.Part{Owner: "o", Fence: 7}}.Call()
	w.Confirm(at, unconfirmedGrant{Lock: lock, Proof: proof, Replicas: replicas, Until: time.Now().Add(wait), Done: func(o confirmation) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if _, twice := w.outcomes[lock]; twice {
			panic(lock + " has two outcomes")
		}
		text := fmt.Sprintf("%d replicas", o.Have)
		switch {
		case o.Confirmed:
			text = "confirmed"
		case o.Refused != nil:
			text = o.Refused.Error()
		}
		w.outcomes[lock] = fmt.Sprintf("%s after %v", text, time.Since(w.begin))
	}})
}

func (w *confirmWorld) check(t *testing.T, want map[string]string) {
	t.Helper()
	for lock, outcome := range want {
		if got := w.outcomes[lock]; got != outcome {
			t.Errorf("%s: %q, want %q", lock, got, outcome)
		}
	}
	if len(w.outcomes) != len(want) {
		t.Errorf("the outcomes are %v, want %d", w.outcomes, len(want))
	}
}

func TestGrantsOfOneServerShareARound(t *testing.T) {
	play(t, func(t *testing.T, w *confirmWorld) {
		s := newServer(1)
		at := &confirmNode{at: s}
		s.during = func() { // these come while the round is on its way
			if !w.Busy() {
				t.Error("a grant waits, and the confirmer is not busy")
			}
			for _, lock := range []string{"b", "c", "d"} {
				w.grant(at, lock, 1, time.Second)
			}
		}
		w.grant(at, "a", 1, time.Second)
		w.settle()
		if got := s.rounds(); got != "a | b c d" {
			t.Errorf("the rounds: %s", got)
		}
		w.check(t, map[string]string{"a": "confirmed after 0s", "b": "confirmed after 0s", "c": "confirmed after 0s", "d": "confirmed after 0s"})
		if len(w.lines) != 0 {
			t.Error("a line is left")
		}
	})
}

// A client that wants more replicas than there are delays the others by one quick round, and then by none.
func TestAGrantForManyReplicasDelaysTheOthersByAQuickRound(t *testing.T) {
	play(t, func(t *testing.T, w *confirmWorld) {
		s := newServer(1)
		at := &confirmNode{at: s}
		s.during = func() {
			w.grant(at, "behind", 1, 2*time.Second)
			time.AfterFunc(200*time.Millisecond, func() { w.grant(at, "later", 1, 2*time.Second) })
		}
		w.grant(at, "greedy", 3, 2*time.Second)
		w.settle()
		w.check(t, map[string]string{"behind": "confirmed after 50ms", "later": "confirmed after 200ms", "greedy": "1 replicas after 2s"})
		if len(s.limits) > 10 || !slices.Contains(s.limits, patientLimit) {
			t.Errorf("the rounds had %v", s.limits)
		}
	})
}

// One round waits for the smallest number first, and for the next one with what is left of its time.
func TestARoundWaitsForOneNumberAfterTheOther(t *testing.T) {
	play(t, func(t *testing.T, w *confirmWorld) {
		s := newServer(2)
		at := &confirmNode{at: s}
		s.during = func() {
			w.grant(at, "three", 3, 30*time.Millisecond)
			w.grant(at, "two", 2, time.Second)
			w.grant(at, "one", 1, time.Second)
		}
		w.grant(at, "first", 1, time.Second)
		w.settle()
		if got := s.rounds(); got != "first | one two three" {
			t.Errorf("the rounds: %s", got)
		}
		w.check(t, map[string]string{
			"first": "confirmed after 0s", "one": "confirmed after 0s", "two": "confirmed after 0s", "three": "2 replicas after 30ms",
		})
	})
}

// How one server answers the questions about one grant. Other servers have their own rounds meanwhile.
func TestHowAGrantIsConfirmed(t *testing.T) {
	const no = "NOPERM this user has no permissions"
	for name, c := range map[string]struct {
		replicas    int
		is          func(s *server)
		wait        time.Duration
		want        string
		least, most int // questions
	}{
		"a replica comes back while the client waits": {0, func(s *server) {
			time.AfterFunc(699500*time.Microsecond, func() { s.do(func() { s.replicas = 1 }) })
		}, 10 * time.Second, "confirmed after 700ms", 2, 10},
		"the script is refused for good": {1, func(s *server) { s.says["k"] = no }, time.Second, no + " after 0s", 1, 1},
		"the wait is refused for good":   {1, func(s *server) { s.err = redislink.Refusal(no) }, time.Second, no + " after 0s", 1, 1},
		"a refusal that passes is no outcome": {1, func(s *server) {
			s.says["k"] = "LOADING Redis is loading the dataset in memory"
			time.AfterFunc(980*time.Millisecond, func() { s.do(func() { delete(s.says, "k") }) })
		}, 10 * time.Second, "confirmed after 1s", 10, 25},
		"it cannot be asked": {1, func(s *server) { s.err = redislink.ErrUnsent }, time.Second, "0 replicas after 1s", 10, 25},
		"it does not answer": {1, func(s *server) {
			s.mute = true
		}, 100 * time.Millisecond, fmt.Sprintf("0 replicas after %v", quickLimit+answerSlack), 1, 1},
		"it does not have the grant":                {1, func(s *server) { s.gone["k"] = true }, time.Second, "0 replicas after 0s", 1, 1},
		"the client's time is over":                 {1, func(*server) {}, -time.Second, "confirmed after 0s", 1, 1},
		"its time is over, and there is no replica": {0, func(*server) {}, -time.Second, "0 replicas after 5ms", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, w *confirmWorld) {
				s := newServer(c.replicas)
				c.is(s)
				w.grant(&confirmNode{at: s}, "k", 1, c.wait)
				w.grant(&confirmNode{at: newServer(1)}, "other", 1, time.Second)
				if len(s.says) > 0 && c.most == 1 { // nor does a refusal of one grant concern the others of the round
					w.grant(&confirmNode{at: s}, "beside", 1, time.Second)
				}
				w.settle()
				want := map[string]string{"k": c.want, "other": "confirmed after 0s"}
				if _, ok := w.outcomes["beside"]; ok {
					want["beside"] = want["other"]
				}
				w.check(t, want)
				if n := len(s.writes); n < c.least || n > c.most || c.wait < 0 && s.limits[0] != leastLimit {
					t.Errorf("%d questions with %v", n, s.limits)
				}
			})
		})
	}
}

// Replicas of the server that had the slot say nothing of the server that has it now.
func TestAGrantWhoseSlotMovesWhileReplicasAnswerIsNotConfirmed(t *testing.T) {
	play(t, func(t *testing.T, w *confirmWorld) {
		from, to := newServer(1), newServer(1)
		one, other, stays := &confirmNode{at: from}, &confirmNode{at: from}, &confirmNode{at: from}
		to.gone["other"] = true
		from.during = func() {
			for _, n := range []*confirmNode{one, other} {
				n.mu.Lock()
				n.at = to
				n.mu.Unlock()
			}
		}
		w.grant(one, "one", 1, time.Second)
		w.grant(other, "other", 1, time.Second)
		w.grant(stays, "stays", 1, time.Second)
		w.settle()
		w.check(t, map[string]string{"one": "confirmed after 50ms", "other": "0 replicas after 50ms", "stays": "confirmed after 0s"})
	})
}

// The commands of a round are written in one go, so there is a limit to their number.
func TestARoundHasABoundedNumberOfGrants(t *testing.T) {
	play(t, func(t *testing.T, w *confirmWorld) {
		s := newServer(1)
		at := &confirmNode{at: s}
		s.during = func() {
			for i := range 2*mostGrants + 1 {
				w.grant(at, fmt.Sprint(i), 1, time.Second)
			}
		}
		w.grant(at, "first", 1, time.Second)
		w.settle()
		var sizes []int
		for _, locks := range s.writes {
			sizes = append(sizes, len(locks))
		}
		if !slices.Equal(sizes, []int{1, mostGrants, mostGrants, 1}) || len(w.outcomes) != 2*mostGrants+2 {
			t.Errorf("rounds of %v, %d outcomes", sizes, len(w.outcomes))
		}
	})
}

// Close ends the round on its way, and no grant is asked for again: sessions have ended.
func TestCloseEndsTheQuestions(t *testing.T) {
	play(t, func(t *testing.T, w *confirmWorld) {
		s := newServer(0)
		s.during = w.Close
		w.grant(&confirmNode{at: s}, "k", 1, time.Hour)
		w.settle()
		w.check(t, map[string]string{"k": "0 replicas after 0s"})
		if n := len(s.writes); n != 1 {
			t.Errorf("%d questions", n)
		}
	})
}
