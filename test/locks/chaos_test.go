package locks

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// chaosTime is how long faults are injected. Without it the test is skipped: it takes long, and wants the machine to itself.
func chaosTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("LOCKPROXY_CHAOS_TIME")
	if text == "" {
		t.Skip("runs with LOCKPROXY_CHAOS_TIME, by make chaos")
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("LOCKPROXY_CHAOS_TIME: %v", err)
	}
	return d
}

// seedOf is LOCKPROXY_SEED or a new one. It is printed if the test fails.
func seedOf(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LOCKPROXY_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("LOCKPROXY_SEED: %v", err)
		}
	}
	t.Logf("LOCKPROXY_SEED=%d", seed)
	return seed
}

// Where there are namespaces a cut loses packets, else relays hold them back.
func TestLocksHoldUnderFaults(t *testing.T) {
	runChaos(t, settings{seed: seedOf(t), namespaces: noNamespaces() == "", workers: 6, keys: 3, lease: time.Second}, chaosTime(t))
}

func TestFencesHoldThoughRedisForgets(t *testing.T) {
	runChaos(t, settings{seed: seedOf(t), volatile: true, workers: 6, keys: 3, lease: time.Second}, chaosTime(t)/2)
}

func TestLocksHoldWhileAClusterChanges(t *testing.T) {
	t.Parallel()
	runChaos(t, settings{seed: seedOf(t), cluster: true, workers: 5, keys: 4, lease: 4 * time.Second}, chaosTime(t))
}

func TestLocksHoldWhileThePrimaryIsCutOffFromItsPeers(t *testing.T) {
	t.Parallel()
	runChaos(t, settings{seed: seedOf(t), sentinels: true, workers: 5, keys: 3, lease: 4 * time.Second}, chaosTime(t))
}

// runChaos is one experiment: some calm, then faults, then time to recover, then the end and all checks.
func runChaos(t *testing.T, set settings, d time.Duration) {
	s := newStand(t, set)
	t.Cleanup(func() {
		s.watcher.stop()
		s.stalls.stop()
		t.Log(s.summary())
		if t.Failed() {
			s.saveHistory(filepath.Join(t.ArtifactDir(), "history.txt"))
		}
	})
	s.wait(2 * time.Second)
	s.inject(d, s.faults())
	s.recoverFromFaults()
	s.endOfWork()
	s.watcher.stop()
	s.stalls.stop()
	for _, f := range s.check() {
		s.fail(f.check, "%s", f.text)
	}
}

// reconnect is what a proxy may need to notice the end of a cut and reach Redis again: a time-out to connect, and the
// longest pause between attempts.
const reconnect = 4 * time.Second

// recoverFromFaults demands that each proxy grants locks again soon after the last fault, and that a release at one
// reaches a waiter at the other. The start of a process is not part of that time: on a busy machine it takes seconds.
func (s *stand) recoverFromFaults() {
	for _, p := range s.proxies {
		redistest.Eventually(s.t, patience, p.name+" to listen", func() bool {
			c, err := p.dial()
			if err == nil {
				c.hangUp()
			}
			return err == nil
		})
	}
	for i, p := range s.proxies {
		for n, way := range ways {
			s.pass(p, s.proxies[1-i], fmt.Sprintf("probe%d-%d", i, n), way)
		}
	}
}

// ways are how a lock is held by one, and then by another.
var ways = [][2][]string{
	{nil, nil},
	{nil, {"SHARED"}},
	{{"SHARED"}, nil},
	{{"LIMIT", "1"}, {"LIMIT", "1"}},
}

// pass hands a lock of its own from one proxy to the other.
func (s *stand) pass(from, to *namedProxy, key string, way [2][]string) {
	since := mono()
	trouble := pass(from, to, key, way)
	for trouble != nil && mono()-since < int64(reconnect)+s.stalls.since(since) {
		s.wait(20 * time.Millisecond)
		trouble = pass(from, to, key, way)
	}
	if trouble == nil {
		return
	}
	s.fail("liveness", "no lock goes from %s to %s %v after the last fault, held as %q: %v", from.name, to.name, reconnect, way, trouble)
}

func pass(from, to *namedProxy, key string, way [2][]string) error {
	a, err := from.dial()
	if err != nil {
		return err
	}
	defer a.hangUp()
	b, err := to.dial()
	if err != nil {
		return err
	}
	defer b.hangUp()
	lock := func(how []string) []string { return append([]string{"LOCK", key, "GRACE", "0"}, how...) }
	v, err := a.do(time.Second, lock(way[0])...)
	if _, ok := v.(int64); !ok || err != nil {
		return fmt.Errorf("LOCK: %v %w", v, err)
	}
	if err := b.send(lock(way[1])...); err != nil {
		return err
	}
	if v, err := b.next(50 * time.Millisecond); err == nil {
		return fmt.Errorf("LOCK of a held lock: %v", v)
	}
	if v, err := a.do(time.Second, "UNLOCK", key); v != int64(1) || err != nil {
		return fmt.Errorf("UNLOCK: %v %w", v, err)
	}
	v, err = b.next(time.Second) // of the four that there are
	if _, ok := v.(int64); !ok || err != nil {
		return fmt.Errorf("waiting LOCK: %v %w", v, err)
	}
	return nil
}

// deafHead is how long a fair lock stays free for a head that does not take it: it is looked at after eight seconds,
// and, if Redis still thinks that it listens, three times more.
const deafHead = 8*time.Second + 3*time.Second

// endOfWork ends half of the workers by their own will and kills the others. Then every lock must be to be had within a
// lease and a second, in order of asking too, and nothing be left over.
func (s *stand) endOfWork() {
	for i, w := range s.workers {
		if i%2 == 0 {
			redistest.Eventually(s.t, patience, "the worker to know of signals", func() bool {
				_, err := os.Stat(s.journal(s.names[i]))
				return err == nil
			})
			w.Signal(syscall.SIGTERM)
		}
	}
	for i, w := range s.workers {
		if i%2 == 0 {
			if code := w.Exit(s.t, 2*patience); code != 0 {
				s.fail("worker", "it ended with code %d", code)
			}
		}
	}
	for i, w := range s.workers {
		if i%2 == 1 {
			w.Kill()
		}
	}
	since := mono()
	limit := since + int64(s.lease+time.Second)
	for i, key := range s.keys {
		s.acquirable(s.proxies[i%2], "TRYLOCK", key, since, limit)
	}
	// Fair waiters of a proxy that was killed, or cut off from Redis when they left, are still in the queue. They are taken
	// for dead when they have been deaf while their lock was free, even if Redis has not noticed yet, because of a cut, that
	// their connection is gone; in that case each has a few seconds of its own. A watch may have to begin anew once.
	left := int64(0)
	for _, key := range s.keys {
		if n, ok := s.home(key).Do(s.t, "LLEN", queueOf(key)).(int64); ok {
			left = max(left, n)
		}
	}
	limit += 2*int64(deafHead+late) + left*int64(4*time.Second)
	for i, key := range s.keys {
		s.acquirable(s.proxies[1-i%2], "FAIRLOCK", key, since, limit)
	}
	for _, key := range s.keys {
		n := s.home(key).Do(s.t, "EXISTS", key, queueOf(key), deadlinesOf(key))
		beside, _ := s.home(key).Do(s.t, "KEYS", "{"+key+"}:*").([]any) // leases of shared holders, and permits
		if n != int64(0) || len(beside) > 0 {
			s.fail("liveness", "%s is not clean after the end of all clients (%.3f)\n%s", key, seconds(since), s.circumstances(key))
		}
	}
}

// acquirable takes and releases a lock, which must be to be had by then, not counting the time that the machine stood still. All permits
// of a lock must be: LOCK without LIMIT would not wait for them, as they are of another type.
func (s *stand) acquirable(p *namedProxy, verb, key string, since, by int64) {
	for {
		stalled := s.stalls.since(since)
		v, err := s.take(p, verb, key, by+stalled)
		if err == nil {
			return
		}
		if stalled == s.stalls.since(since) {
			s.fail("liveness", "%s %s through %s after the end of all clients: %v %v (%.3f)\n%s",
				verb, key, p.name, v, err, seconds(by+stalled), s.circumstances(key))
			return
		}
	}
}

// take takes and releases a lock. It waits for the lock until then.
func (s *stand) take(p *namedProxy, verb, key string, by int64) (reply, error) {
	c, err := p.dial()
	if err != nil {
		return nil, err
	}
	defer c.hangUp()
	left := max(1, (by-mono())/int64(time.Millisecond))
	line := []string{verb, key, "WAIT", strconv.FormatInt(left, 10)}
	if strings.HasPrefix(key, "limit") {
		line = append(line, "LIMIT", "1")
	}
	v, err := c.do(time.Duration(left)*time.Millisecond+late, line...)
	if _, ok := v.(int64); !ok || err != nil {
		return v, cmp.Or(err, errNotGranted)
	}
	if v, err = c.do(patience, "UNLOCK", key); v != int64(1) || err != nil {
		return v, fmt.Errorf("UNLOCK: %w", cmp.Or(err, errNotReleased))
	}
	return v, nil
}

var errNotGranted, errNotReleased = errors.New("not granted"), errors.New("not released")

// logLine is what happened at one moment.
type logLine struct {
	at   int64
	text string
}

// inOrder is a log, oldest line first.
func inOrder(lines []logLine) string {
	slices.SortFunc(lines, func(a, b logLine) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	for _, l := range lines {
		fmt.Fprintln(&text, l.text)
	}
	return text.String()
}

// saveHistory writes all commands, faults and places in queues in the order of their beginning.
func (s *stand) saveHistory(path string) {
	var lines []logLine
	for _, ops := range s.history() {
		for _, o := range ops {
			lines = append(lines, logLine{o.Call, o.String()})
		}
	}
	for _, in := range slices.Concat(s.incidents, s.stalls.all()) {
		lines = append(lines, logLine{in.from, in.String()})
	}
	for _, key := range s.keys {
		lines = append(lines, s.watcher.places(key, 0, math.MaxInt64)...)
	}
	if err := os.WriteFile(path, []byte(inOrder(lines)), 0o600); err != nil {
		s.t.Error(err)
	}
	s.t.Logf("history (kept with -artifacts): %s", path)
}

// circumstances are what there is to see of a lock that should be free.
func (s *stand) circumstances(key string) string {
	text := fmt.Sprintf("  at %.3f: %v, queue %v, PTTL %v", seconds(mono()), s.home(key).Do(s.t, "KEYS", "*"+key+"*"),
		s.home(key).Do(s.t, "LRANGE", queueOf(key), "0", "-1"), s.home(key).Do(s.t, "PTTL", key))
	for _, p := range s.proxies {
		if c, err := p.dial(); err == nil {
			v, err := c.do(time.Second, "LOCKLIST")
			text += fmt.Sprintf("\n  %s: %v %v", p.name, v, err)
			v, err = c.do(time.Second, "LOCKINFO", key)
			text += fmt.Sprintf("\n  %v %v", v, err)
			c.hangUp()
		}
	}
	return text
}
