package sentinel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Options name the primary that is watched, and the Sentinels that watch it. All are required, except for Map.
type Options struct {
	Name      string              // of the primary, in the Sentinels' configuration
	Sentinels []topology.Server   // that are asked
	Map       topology.AddressMap // where announced servers are reached
	Primary   *topology.Primary   // gets the views

	Dialer *dial.Dialer  // connects with Sentinels by their addresses
	ID     dial.Identity // of the proxy at the Sentinels; in RESP3

	// Role connects to a reachable address to find out the role of the server there.
	Role func(ctx context.Context, addr string) dial.Role

	// Moved is called after each change of the address, from Run's goroutine, with the old and the new address.
	Moved func(from, to string)

	// DownAfter is told the time after which Sentinels take a silent primary for down, when it is known and when it
	// changes.
	DownAfter func(time.Duration)

	Logger *zap.Logger
}

// Watcher keeps the view of one primary.
type Watcher struct {
	opts    Options
	links   []*link
	results chan result
	event   chan struct{}  // size 1: a Sentinel has told of a change
	chosen  chan promotion // size 1: a replica is being promoted
	tried   chan trial     // the outcome of try
	asking  sync.WaitGroup // goroutines of Run

	replicas atomic.Int64 // the most that a Sentinel knows; 0: no Sentinel has answered
	down     atomic.Int64 // the longest down-after-milliseconds of a Sentinel, in nanoseconds; 0: it is not known
	old      atomic.Bool  // it has run for a second

	// Owned by Run.
	latest   []said // by link
	asked    time.Time
	follower follower
	trying   bool  // the proof of a claim is looked for
	denied   claim // has been logged as not followed
}

// said is the latest answer of a Sentinel; at is zero if there is none.
type said struct {
	answer answer
	at     time.Time
}

// New returns a watcher. It starts nothing.
func New(opts Options) *Watcher {
	w := &Watcher{
		opts: opts, results: make(chan result), event: make(chan struct{}, 1), tried: make(chan trial),
		chosen: make(chan promotion, 1),
		latest: make([]said, len(opts.Sentinels)), follower: follower{sentinels: len(opts.Sentinels)},
	}
	connect := func(ctx context.Context, addr string) (net.Conn, error) {
		return opts.Dialer.Dial(ctx, dial.Target{At: topology.Node(addr), ID: opts.ID})
	}
	for i, server := range opts.Sentinels {
		w.links = append(w.links, &link{
			number: i, addr: server.Addr, name: opts.Name, connect: connect, results: w.results, events: w.event,
			chosen:  w.chosen,
			trouble: trouble{log: opts.Logger.With(zap.String("sentinel", server.Addr))},
		})
	}
	return w
}

const (
	// pollEvery is the pause between two questions to a Sentinel without a reason. Sentinels do not promise to tell all
	// events.
	pollEvery = time.Second
	// askEvery is the least time between two questions to a Sentinel.
	askEvery = 20 * time.Millisecond
	// answerLife is the time for which an answer stands without a newer one.
	answerLife = 3 * time.Second
	// firstLook is how long the first view waits for a majority that agrees.
	firstLook = 200 * time.Millisecond
	// roleLimit bounds the wait for the role of a server. One that needs longer is stopped or cut off.
	roleLimit = time.Second
	// A replica that is being promoted is asked for its role every promotionLooks. It takes milliseconds.
	promotionLooks, promotionLimit = 10 * time.Millisecond, 3 * time.Second
	// youth is the time for which it is no news that the address is not known.
	youth = time.Second
)

// Run follows the primary until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	defer w.asking.Wait()
	for _, l := range w.links {
		w.asking.Go(func() { l.run(ctx) })
	}
	defer time.AfterFunc(youth, func() { w.old.Store(true) }).Stop()
	began := time.Now()
	next := time.NewTimer(firstLook)
	defer next.Stop()
	for {
		chosen := w.chosen
		if w.trying { // it waits for its turn
			chosen = nil
		}
		select {
		case <-ctx.Done():
			return
		case r := <-w.results:
			w.note(r)
			w.decide(ctx, time.Since(began) >= firstLook)
			continue
		case p := <-chosen:
			if c := w.follower.promise(w.opts.Map.Of(p.replica), w.opts.Map.Of(p.primary)); c.addr != "" {
				w.try(ctx, c)
			}
			continue
		case t := <-w.tried:
			w.trying = false
			w.conclude(t)
			continue
		case <-w.event:
		case <-w.opts.Primary.Doubts():
		case <-next.C:
			w.decide(ctx, true) // with the answers that are there, if some Sentinels do not answer
		}
		if pause := askEvery - time.Since(w.asked); pause > 0 {
			next.Reset(pause) // nothing is missed: the timer asks
			continue
		}
		w.asked = time.Now()
		for _, l := range w.links {
			l.ask()
		}
		next.Reset(pollEvery - pollEvery/10 + rand.N(pollEvery/5))
	}
}

// Young reports whether the watcher has run for less than a second, or not at all. It may be called from any goroutine.
func (w *Watcher) Young() bool { return !w.old.Load() }

// Find returns when the address is known, in place of Run. The error says why there is none when ctx ends.
func (w *Watcher) Find(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { w.Run(ctx) })
	looks := time.NewTicker(askEvery)
	defer looks.Stop()
	for w.opts.Primary.Address() == "" {
		select {
		case <-looks.C:
		case <-ctx.Done():
			_, err := w.opts.Primary.Resolve("")
			return err
		}
	}
	return nil
}

// note keeps the answer of a Sentinel.
func (w *Watcher) note(r result) {
	switch {
	case r.err == nil:
		r.answer.addr = w.opts.Map.Of(r.answer.addr)
		w.latest[r.number] = said{r.answer, time.Now()}
	case errors.Is(r.err, errUnknownName):
		w.latest[r.number] = said{}
	}
	if r.err != nil {
		w.unknown(r.err)
	}
}

// unknown notes why the primary is not known, unless it is.
func (w *Watcher) unknown(why error) {
	if w.opts.Primary.Address() == "" {
		//nolint:errorlint // a Sentinel's refusal is not Redis's
		w.opts.Primary.Unknown(fmt.Errorf("%w: %v", topology.ErrUnknown, why))
	}
}

// living are the latest answers, without the old ones.
func (w *Watcher) living() (all []answer) {
	now := time.Now()
	for _, s := range w.latest {
		if now.Sub(s.at) < answerLife {
			all = append(all, s.answer)
		}
	}
	return all
}

// decide follows the view that the latest answers lead to. late says that the first view waits for no majority.
func (w *Watcher) decide(ctx context.Context, late bool) {
	answers := w.living()
	c := w.follower.hear(time.Now(), answers)
	w.noteReplicas(answers)
	switch {
	case c.addr == "":
		w.denied = claim{}
		if len(answers) > 0 {
			w.unknown(errDisagree)
		}
	case c.proof == noProof:
		w.publish(c.view)
	case !w.trying && (late || w.follower.present.addr != ""):
		w.try(ctx, c)
	}
}

var errDisagree = errors.New("the sentinels that answer do not agree")

// trial is a claim whose proof is looked for.
type trial struct {
	claim
	from view
	next dial.Role // of the server of the claim; Unreachable, too, if the present one refutes the claim
}

// try asks the servers of a claim for their roles. One is tried at a time: the next answer of a Sentinel brings the
// claim again.
func (w *Watcher) try(ctx context.Context, c claim) {
	w.trying = true
	t := trial{claim: c, from: w.follower.present}
	w.asking.Go(func() {
		switch {
		case t.proof == promoted:
			t.next = w.awaitPromotion(ctx, t.addr)
		case t.proof == risen || t.proof.leaves(w.role(ctx, t.from.addr)):
			t.next = w.role(ctx, t.addr) // which shows the server the proxy's password
		}
		select {
		case w.tried <- t:
		case <-ctx.Done():
		}
	})
}

// role asks a server for its role.
func (w *Watcher) role(ctx context.Context, addr string) dial.Role {
	ctx, cancel := context.WithTimeout(ctx, roleLimit)
	defer cancel()
	return w.opts.Role(ctx, addr)
}

// awaitPromotion asks a server for its role until it is a primary. It takes writes from then on, and those that the old
// one takes are lost.
func (w *Watcher) awaitPromotion(ctx context.Context, addr string) (role dial.Role) {
	for end := time.Now().Add(promotionLimit); time.Now().Before(end); {
		if role = w.role(ctx, addr); role == dial.Primary {
			return role
		}
		select {
		case <-time.After(promotionLooks):
		case <-ctx.Done():
			return dial.Unreachable
		}
	}
	return dial.Unreachable
}

// conclude follows a claim that is proved, if the Sentinels have not changed their minds.
func (w *Watcher) conclude(t trial) {
	if w.follower.present.addr != t.from.addr {
		return
	}
	if t.proof == promoted {
		if rises(t.next) {
			w.publish(t.view)
		}
		return
	}
	if w.follower.hear(time.Now(), w.living()) != t.claim {
		return
	}
	if !rises(t.next) {
		w.deny(t)
		return
	}
	if t.from.addr != "" && t.epoch <= t.from.epoch {
		w.opts.Logger.Warn("the sentinels name another primary, without a later failover: it is followed",
			zap.String("from", t.from.addr), zap.Int64("from_epoch", t.from.epoch),
			zap.String("to", t.addr), zap.Int64("to_epoch", t.epoch))
	}
	w.publish(t.view)
}

// deny notes, once, that a view is not followed for the sake of its server.
func (w *Watcher) deny(t trial) {
	why := "it cannot be reached"
	if t.next == dial.Replica {
		why = "it says that it is a replica"
	}
	w.unknown(fmt.Errorf("the sentinels name %s, but %s", t.addr, why))
	if t.proof == risen && t.from.addr != "" && w.denied != t.claim {
		w.denied = t.claim
		w.opts.Logger.Warn("the sentinels name another primary, which is not followed",
			zap.String("from", t.from.addr), zap.String("to", t.addr), zap.String("why", why))
	}
}

func (w *Watcher) publish(next view) {
	from, to := w.opts.Primary.Address(), next.addr
	w.follower.follow(next)
	if w.opts.Primary.Publish(to) {
		w.opts.Moved(from, to)
	}
}

// Replicas is how many replicas the primary has, by the word of the Sentinel that knows most. 0: it is not known. It
// may be called from any goroutine.
func (w *Watcher) Replicas() int { return int(w.replicas.Load()) }

// noteReplicas notes how many replicas there are, and tells the longest time after which a Sentinel takes the primary
// for down.
func (w *Watcher) noteReplicas(answers []answer) {
	longest, replicas, known := time.Duration(0), 0, false
	for _, a := range answers {
		if a.addr == w.follower.present.addr {
			longest, replicas, known = max(longest, a.downAfter), max(replicas, a.replicas), true
		}
	}
	if known { // else those of before stand
		w.replicas.Store(int64(replicas))
	}
	if longest != 0 && w.down.Swap(int64(longest)) != int64(longest) {
		w.opts.DownAfter(longest)
	}
}
