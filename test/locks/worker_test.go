package locks

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// workerEnv carries a workerConfig as JSON.
const workerEnv = "LOCKPROXY_TEST_WORKER"

// workerConfig is what a worker process is told.
type workerConfig struct {
	Name    string // unique, also over restarts
	Seed    uint64
	Proxies []string // addresses as this worker reaches them
	Keys    []string
	Lease   time.Duration // of the proxies' watchdog
	Journal string        // file
	Sync    int           // the number of all replicas, for acquires with SYNC; 0: there are none of these
}

// worker is a client process of the chaos tests: it takes locks in all ways there are,
// and writes down what it asked and was told. It does one thing after the other.
type worker struct {
	cfg     workerConfig
	rng     *rand.Rand
	journal journal
	main    *session // nil: not connected
	other   *session // a second connection to the same proxy, for owners that use several
	n       int      // commands so far
	dialed  int
	stop    atomic.Bool // SIGTERM: finish the cycle, then end
}

// session is a connection with the name its own owner gets in the history.
type session struct {
	*conn
	proxy int
	name  string
	heard int64 // when the connection last gave a sign of life
}

// grip is what the worker holds by its latest grant.
type grip struct {
	fence   int64
	holds   int
	permits []int64       // the fences of further permits
	lease   time.Duration // the longest that an extension has set
}

// wish is how a lock is asked for.
type wish struct {
	verb, key, owner string // owner "": the session's own
	kind             kind
	limit            int
	lease            time.Duration
	fixed, ends      bool // PX, MAXHOLD
	wait             time.Duration
	graced           bool
	sync             int
	args             []string
}

func workerMain(config string) int {
	// First of all: whoever sees the journal may send a signal.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	var cfg workerConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 2
	}
	file, err := os.OpenFile(cfg.Journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 2
	}
	w := &worker{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), journal: journal{file}}
	go func() {
		<-signals
		w.stop.Store(true)
	}()
	for !w.stop.Load() {
		w.cycle()
		w.pause(10 * time.Millisecond)
	}
	return 0
}

// pause thinks for up to d.
func (w *worker) pause(d time.Duration) { time.Sleep(w.upTo(d)) }

// upTo is a random length of time below d.
func (w *worker) upTo(d time.Duration) time.Duration { return time.Duration(w.rng.Int64N(int64(d))) }

func (w *worker) chance(percent int) bool { return w.rng.IntN(100) < percent }

// cycle takes one lock, works under it and gives it back in one of many ways.
func (w *worker) cycle() {
	if w.main == nil && !w.connect(&w.main, w.rng.IntN(len(w.cfg.Proxies))) {
		w.pause(100 * time.Millisecond)
		return
	}
	wish := w.choose()
	got := w.acquire(w.main, wish)
	if got.Out != acquired {
		if got.Out == unknown {
			w.hangUp()
		}
		return
	}
	h := &grip{fence: got.Fence, holds: 1}
	if !w.work(wish, h) {
		return
	}
	switch {
	case w.chance(4):
		w.hangUp() // and leave the lock to its lease or grace
	case wish.fixed && w.chance(10):
		time.Sleep(max(wish.lease, h.lease)) // let it run out: a later acquire must not find it
		if h.holds > 1 || len(h.permits) > 0 {
			w.hangUp() // one without an end of its own is renewed as long as its connection is there
		}
	default:
		w.release(wish, h)
	}
}

// kindOf makes up how to hold a lock. Its name says which kinds there are, and which is the most frequent.
func (w *worker) kindOf(x *wish) {
	switch {
	case strings.HasPrefix(x.key, "lock"):
	case !strings.HasPrefix(x.key, "shared"):
		x.kind, x.limit = limited, 1+w.rng.IntN(3)
	case w.chance(70):
		x.kind = shared
	}
}

// choose makes up how to ask. Few keys, so that there is always somebody to wait for.
func (w *worker) choose() wish {
	x := wish{
		verb: []string{"LOCK", "TRYLOCK", "FAIRLOCK"}[w.rng.IntN(3)], key: w.cfg.Keys[w.rng.IntN(len(w.cfg.Keys))],
		lease: w.cfg.Lease, wait: -1,
	}
	w.kindOf(&x)
	opt := func(name string, ms int64) { x.args = append(x.args, name, strconv.FormatInt(ms, 10)) }
	if w.chance(50) {
		x.wait = []time.Duration{0, 20, 100, 500, 2000}[w.rng.IntN(5)] * time.Millisecond
		opt("WAIT", x.wait.Milliseconds())
	} else if x.verb == "TRYLOCK" {
		x.wait = 0
	}
	if w.chance(35) {
		x.fixed = true
		x.lease = w.cfg.Lease/4 + w.upTo(w.cfg.Lease*3/4)
		x.lease = x.lease.Truncate(time.Millisecond)
		opt("PX", x.lease.Milliseconds())
	}
	if w.chance(5) {
		most := w.cfg.Lease/2 + w.upTo(w.cfg.Lease)
		most = most.Truncate(time.Millisecond)
		x.lease = min(x.lease, most)
		x.ends = true
		opt("MAXHOLD", most.Milliseconds())
	}
	w.sync(&x, 40)
	if x.verb == "FAIRLOCK" && w.chance(80) || w.chance(30) {
		x.owner = fmt.Sprintf("%s-%d", w.cfg.Name, w.n)
		x.args = append(x.args, "OWNER", x.owner)
	} else if w.chance(30) {
		x.graced = true
		opt("GRACE", []int64{0, 0, 50, 300}[w.rng.IntN(4)])
	}
	return x
}

// sync makes some acquires wait for all replicas.
func (w *worker) sync(x *wish, percent int) {
	if w.cfg.Sync > 0 && w.chance(percent) {
		x.sync = w.cfg.Sync
		x.args = append(x.args, "SYNC", strconv.Itoa(x.sync))
	}
}

// work passes the time while the lock is held. It returns false if the connections had to be given up.
func (w *worker) work(x wish, h *grip) bool {
	think := 5 * time.Millisecond
	if w.chance(2) {
		think = w.cfg.Lease * 3 / 2 // longer than one lease: the watchdog must do its part
	}
	for range 1 + w.rng.IntN(3) {
		w.pause(think)
		var o op
		switch n := w.rng.IntN(10); {
		case n < 2:
			o = w.look(w.main, x, h.fence)
		case n == 2:
			o = w.extend(w.main, x, h.fence)
			h.lease = max(h.lease, time.Duration(o.Lease))
		case n <= 4 && x.kind == shared:
			o = w.alone(x, think)
		case n == 5:
			s := w.main
			if x.owner != "" && w.second() {
				s = w.other
			}
			again := x
			again.wait, again.graced = 0, false
			again.verb = "TRYLOCK"
			again.args, again.sync = ownerArgs(x.owner), 0
			w.sync(&again, 20)
			again.lease, again.fixed, again.ends = w.cfg.Lease, false, false
			switch o = w.acquire(s, again); {
			case o.Out != acquired:
			case x.kind == limited && w.chance(50):
				h.permits = append(h.permits, o.Fence)
			case x.kind == limited:
				if o = w.unlock(s, x, o.Fence, true); o.Out != unknown {
					o = w.look(w.main, x, h.fence) // the other permit stays
				}
			case o.Fence == h.fence:
				h.holds++
			default:
				*h = grip{fence: o.Fence, holds: 1} // the old grant had ended
			}
		default:
			continue
		}
		if o.Out == unknown {
			w.hangUp()
			return false
		}
	}
	return true
}

// alone asks for a lock that it holds shared. It is refused, unless that hold has ended.
func (w *worker) alone(x wish, think time.Duration) op {
	up := wish{verb: "LOCK", key: x.key, owner: x.owner, lease: w.cfg.Lease, wait: w.upTo(500 * time.Millisecond).Truncate(time.Millisecond), graced: x.graced}
	up.args = append(ownerArgs(x.owner), "WAIT", strconv.FormatInt(up.wait.Milliseconds(), 10))
	w.sync(&up, 20)
	o := w.acquire(w.main, up)
	if o.Out != acquired {
		return o
	}
	w.pause(think)
	o = w.unlock(w.main, up, o.Fence, false)
	if o.Out != released {
		o.Out = unknown // whatever is left of it is left to the lease
	}
	return o
}

// release gives all holds back.
func (w *worker) release(x wish, h *grip) {
	for _, fence := range append(slices.Repeat([]int64{h.fence}, h.holds), h.permits...) {
		s := w.main
		if x.owner != "" && w.chance(40) && w.second() {
			s = w.other
		}
		switch w.unlock(s, x, fence, x.kind == limited || w.chance(30)).Out {
		case unknown, refused, notHeld:
			// What is left of it is left to the lease; a new connection has a new owner.
			w.hangUp()
			return
		case released:
			if x.kind != limited {
				return
			}
		default: // one hold fewer
		}
	}
}

func (w *worker) unlock(s *session, x wish, fence int64, named bool) op {
	return w.about(s, x, op{Verb: "UNLOCK"}, fence, named, nil)
}

func (w *worker) acquire(s *session, x wish) op {
	return w.do(s, x, op{Verb: x.verb, Lease: int64(x.lease), Fixed: x.fixed || x.ends, Wait: int64(x.wait), Sync: x.sync}, x.args)
}

func (w *worker) look(s *session, x wish, fence int64) op {
	return w.do(s, x, op{Verb: "LOCKINFO", Fence: fence}, nil)
}

func (w *worker) extend(s *session, x wish, fence int64) op {
	px := (w.cfg.Lease/4 + w.upTo(w.cfg.Lease)).Truncate(time.Millisecond)
	o := op{Verb: "EXTENDLOCK", Lease: int64(px), Fixed: x.fixed || x.ends}
	return w.about(s, x, o, fence, x.kind == limited, []string{"PX", strconv.FormatInt(px.Milliseconds(), 10)})
}

// about is a command about a hold, which is named by its kind or its fence.
func (w *worker) about(s *session, x wish, o op, fence int64, byFence bool, args []string) op {
	args = append(args, ownerArgs(x.owner)...)
	if x.kind == shared {
		args = append(args, string(shared))
	}
	if byFence {
		args = append(args, "FENCE", strconv.FormatInt(fence, 10))
		o.Fence = fence
	}
	return w.do(s, x, o, args)
}

func ownerArgs(owner string) []string {
	if owner == "" {
		return nil
	}
	return []string{"OWNER", owner}
}

// endless is how long a worker waits for a lock if it has not said how long.
const endless = 4 * time.Second

// do sends one command and writes it down.
func (w *worker) do(s *session, x wish, o op, args []string) op {
	o.Worker, o.N, o.Proxy, o.Key, o.Kind, o.Limit, o.Graced = w.cfg.Name, w.n, s.proxy, x.key, x.kind, x.limit, x.graced
	o.Owner, o.Named = x.owner, x.owner != ""
	if !o.Named {
		o.Owner = s.name
	}
	w.n++
	limit := 3 * time.Second
	if o.Wait > 0 {
		limit += time.Duration(o.Wait)
	} else if o.Wait < 0 {
		limit = endless
	}
	if o.acquire() {
		args = append(o.kindArgs(), args...)
	}
	o.Call = mono()
	w.journal.put(o)
	v, err := s.do(limit, append([]string{o.Verb, x.key}, args...)...)
	o.Return = mono()
	if err != nil {
		o.Heard = s.heard
	} else {
		s.heard = o.Return
	}
	o.judge(v, err)
	w.journal.put(o)
	return o
}

// judge reads the reply.
func (o *op) judge(v reply, err error) {
	if err != nil {
		o.Out, o.Return, o.Text = unknown, 0, err.Error()
		return
	}
	o.Out = strange
	switch v := v.(type) {
	case errorReply:
		o.Text = string(v)
		switch v.code() {
		case "NOTHELD", "LOSTLEASE":
			o.Out = notHeld
		case "NOTSYNCED":
			o.Out = notSynced
		case "OVERLOADED", "LOADING", "READONLY", // the last from a server that has just become a replica
			"CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS":
			o.Out = refused
		case "DEADLOCK":
			if o.acquire() && o.Kind == exclusive && o.Verb != "TRYLOCK" { // its owner shares the lock
				o.Out = deadlock
			}
		}
	case nil:
		switch {
		case o.acquire():
			o.Out = busy
		case o.Verb == "LOCKINFO":
			o.Out = others
		}
	case int64:
		switch {
		case o.acquire() && v > 0:
			o.Out, o.Fence = acquired, v
		case o.Verb == "UNLOCK" && v == 1:
			o.Out = released
		case o.Verb == "UNLOCK" && v == 0:
			o.Out = still
		case o.Verb == "EXTENDLOCK" && v == 1:
			o.Out = extended
		}
	case []any:
		o.Out = others
		for _, info := range append(holdersOf(v), fieldsOf(v)) {
			if info["fence"] == strconv.FormatInt(o.Fence, 10) && (!o.Named || info["owner"] == o.Owner) {
				o.Out = mine
			}
		}
	}
	if o.Out == strange && o.Text == "" {
		o.Text = fmt.Sprint(v)
	}
}

// holdersOf are those that LOCKINFO names, if there may be several.
func holdersOf(info []any) (all []map[string]string) {
	for i := 0; i+1 < len(info); i += 2 {
		list, _ := info[i+1].([]any)
		for _, one := range list {
			if fields, ok := one.([]any); ok && info[i] == "holders" {
				all = append(all, fieldsOf(fields))
			}
		}
	}
	return all
}

func (w *worker) connect(s **session, i int) bool {
	c, err := dialRESP(w.cfg.Proxies[i], 2+w.rng.IntN(2), 2*time.Second)
	if err != nil {
		return false
	}
	w.dialed++
	*s = &session{conn: c, proxy: i, name: fmt.Sprintf("%s#%d", w.cfg.Name, w.dialed), heard: mono()}
	return true
}

func (w *worker) second() bool { return w.other != nil || w.connect(&w.other, w.main.proxy) }

// hangUp closes both connections, sometimes with a reset.
func (w *worker) hangUp() {
	for _, s := range []**session{&w.main, &w.other} {
		if *s == nil {
			continue
		}
		if tcp, ok := (*s).nc.(interface{ SetLinger(int) error }); ok && w.chance(30) {
			_ = tcp.SetLinger(0)
		}
		(*s).conn.hangUp()
		*s = nil
	}
}

// fieldsOf turns a flat reply of names and values into a map.
func fieldsOf(flat []any) map[string]string {
	m := make(map[string]string)
	for i := 0; i+1 < len(flat); i += 2 {
		m[fmt.Sprint(flat[i])] = fmt.Sprint(flat[i+1])
	}
	return m
}
