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
	connect func(ctx context.Context, addr string) (net.Conn, error) // with a Sentinel
	results chan result
	event   chan struct{}  // size 1: a Sentinel has told of a change
	chosen  chan rising    // size 1: a replica is being promoted
	tried   chan trial     // the outcome of try
	asking  sync.WaitGroup // goroutines of Run

	replicas atomic.Int64 // the most that a Sentinel knows; 0: no Sentinel has answered
	down     atomic.Int64 // the longest down-after-milliseconds of a Sentinel, in nanoseconds; 0: it is not known
	old      atomic.Bool  // it has run for a second

	// Owned by Run.
	sentinels *sentinelSet
	links     map[int]running // by the number of the Sentinel, as the next ones
	latest    map[int]said
	ignorant  map[int]bool // Sentinels that do not know the name
	asked     time.Time
	election  election
	trying    bool // the proof of a proposal is looked for
}

// said is the latest answer of a Sentinel.
type said struct {
	answer Answer
	at     time.Time
}

// running is a link whose goroutine runs.
type running struct {
	*link
	stop context.CancelFunc
}

// New returns a watcher. It starts nothing.
func New(opts Options) *Watcher {
	w := &Watcher{
		opts: opts, results: make(chan result), event: make(chan struct{}, 1), chosen: make(chan rising, 1),
		tried: make(chan trial), links: map[int]running{}, latest: map[int]said{}, ignorant: map[int]bool{},
	}
	w.connect = func(ctx context.Context, addr string) (net.Conn, error) {
		return opts.Dialer.Dial(ctx, dial.Target{At: topology.Node(addr), ID: opts.ID})
	}
	var addrs []string
	for _, server := range opts.Sentinels {
		addrs = append(addrs, server.Addr)
	}
	w.sentinels = newSentinelSet(addrs)
	return w
}

// start begins to ask a Sentinel.
func (w *Watcher) start(ctx context.Context, m Member) {
	ctx, stop := context.WithCancel(ctx)
	l := &link{
		number: m.Number, addr: m.Addr, name: w.opts.Name, reach: w.opts.Map,
		results: w.results, events: w.event, chosen: w.chosen,
		trouble: trouble{log: w.opts.Logger.With(zap.String("sentinel", m.Addr)), configured: m.Configured},
		connect: func(ctx context.Context) (net.Conn, error) { return w.connect(ctx, m.Addr) },
	}
	w.links[m.Number] = running{l, stop}
	w.asking.Go(func() { l.run(ctx) })
}

// end asks a Sentinel no more.
func (w *Watcher) end(number int) {
	w.links[number].stop()
	delete(w.links, number)
	delete(w.latest, number)
	delete(w.ignorant, number)
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
	// youth is the time for which it is no news that the address is not known.
	youth = time.Second
)

// Run follows the primary until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	defer w.asking.Wait()
	for _, m := range w.sentinels.Members() {
		w.start(ctx, m)
	}
	defer time.AfterFunc(youth, func() { w.old.Store(true) }).Stop()
	began := time.Now()
	next := time.NewTimer(firstLook)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-w.results:
			if _, asked := w.links[r.number]; !asked {
				continue // it has left
			}
			if w.enlist(ctx, r) {
				w.note(r)
			}
			w.decide(ctx, time.Since(began) >= firstLook)
			continue
		case p := <-w.chosen:
			w.look(ctx, p)
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

// enlist begins to ask the Sentinels that one has told of. It reports whether its answer counts.
func (w *Watcher) enlist(ctx context.Context, r result) (counts bool) {
	if r.err != nil {
		return true
	}
	if w.Young() { // the Sentinels of the configuration may be listed by other addresses, and have not told their ids yet
		r.peers = nil
	}
	counts, joins, leaves := w.sentinels.Answered(r.number, r.id, r.peers, time.Now())
	for _, m := range leaves {
		w.opts.Logger.Info("a learnt sentinel is not asked any more", zap.String("sentinel", m.Addr))
		w.end(m.Number)
	}
	for _, m := range joins {
		w.opts.Logger.Info("a learnt sentinel is asked: add it to upstream.address", zap.String("sentinel", m.Addr))
		w.start(ctx, m)
	}
	return counts
}

// note keeps the answer of a Sentinel.
func (w *Watcher) note(r result) {
	if r.err == nil {
		w.latest[r.number] = said{r.answer, time.Now()}
		delete(w.ignorant, r.number)
		return
	}
	if errors.Is(r.err, errUnknownName) {
		delete(w.latest, r.number)
		if !w.ignorant[r.number] {
			w.opts.Logger.Warn("a sentinel does not know the primary", zap.String("name", w.opts.Name), zap.Error(r.err))
		}
		w.ignorant[r.number] = true
	}
	if w.opts.Primary.Address() == "" {
		why := fmt.Errorf("%w: %v", topology.ErrUnknown, r.err) //nolint:errorlint // a Sentinel's refusal is not Redis's
		w.opts.Primary.Unknown(why)
	}
}

// voices are the living answers. majority is that of the Sentinels that may vote.
func (w *Watcher) voices() (all []voice, majority int) {
	now := time.Now()
	voters := w.sentinels.Voters(now)
	counted := map[string]bool{} // a Sentinel with two addresses counts once
	for _, m := range w.sentinels.Members() {
		s, spoken := w.latest[m.Number]
		switch {
		case !spoken:
		case now.Sub(s.at) >= answerLife:
			delete(w.latest, m.Number)
		case m.ID == "" || !counted[m.ID]:
			counted[m.ID] = true
			all = append(all, voice{s.answer, voters.Has(m)})
		}
	}
	return all, voters.Number/2 + 1
}

// decide follows the view that the latest answers lead to. late says that the first view waits for no majority.
func (w *Watcher) decide(ctx context.Context, late bool) {
	all, majority := w.voices()
	if w.election.present.addr == "" && !late && leader(count(all), majority) == "" {
		return
	}
	next := w.election.judge(time.Now(), all, majority, w.opts.Primary.Refuted())
	switch {
	case next.addr == "":
		return
	case next.proof != noProof:
		w.try(ctx, next)
	case next.addr != w.election.present.addr:
		w.publish(next.view)
	}
	w.noteReplicas(all)
}

// conclude follows a proposal that is proved, if the Sentinels have not changed their minds. A promoted replica is
// followed ahead of their answers. The epoch stays: their next one is greater.
func (w *Watcher) conclude(t trial) {
	if !t.proved || t.from.addr != w.election.present.addr {
		return
	}
	if t.proof == promoted {
		w.publish(view{w.election.present.epoch, t.addr})
		return
	}
	all, majority := w.voices()
	if w.election.judge(time.Now(), all, majority, w.opts.Primary.Refuted()) != t.proposal {
		return
	}
	if t.epoch <= t.from.epoch {
		w.opts.Logger.Warn("a majority of the sentinels names another primary, without a later failover: it is followed",
			zap.String("from", t.from.addr), zap.Int64("from_epoch", t.from.epoch),
			zap.String("to", t.addr), zap.Int64("to_epoch", t.epoch))
	}
	w.publish(t.view)
}

func (w *Watcher) publish(next view) {
	from, to := w.opts.Primary.Address(), w.opts.Map.Of(next.addr)
	w.election.follow(next)
	if w.opts.Primary.Publish(to) {
		w.opts.Moved(from, to)
	}
}

// Replicas is how many replicas the primary has, by the word of the Sentinel that knows most. 0: it is not known. It
// may be called from any goroutine.
func (w *Watcher) Replicas() int { return int(w.replicas.Load()) }

// noteReplicas notes how many replicas there are, and tells the longest time after which a Sentinel takes the primary
// for down.
func (w *Watcher) noteReplicas(all []voice) {
	longest, replicas, known := time.Duration(0), 0, false
	for _, v := range all {
		if v.Addr == w.election.present.addr {
			longest, replicas, known = max(longest, v.DownAfter), max(replicas, v.Replicas), true
		}
	}
	if known { // else those of before stand
		w.replicas.Store(int64(replicas))
	}
	if longest != 0 && w.down.Swap(int64(longest)) != int64(longest) {
		w.opts.DownAfter(longest)
	}
}
