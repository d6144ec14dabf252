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

	"github.com/lockproxy/lockproxy/internal/upstream/address"
	"github.com/lockproxy/lockproxy/internal/upstream/answers"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/handshake"
	"github.com/lockproxy/lockproxy/internal/upstream/roster"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Options name the primary that is watched, and the Sentinels that watch it. All are required, except for Map.
type Options struct {
	Name      string            // of the primary, in the Sentinels' configuration
	Sentinels []address.Server  // that are asked
	Map       address.Map       // where announced servers are reached
	Primary   *topology.Primary // gets the views

	Dialer *dial.Dialer       // connects with Sentinels by their addresses
	ID     handshake.Identity // of the proxy at the Sentinels; in RESP3

	// IsPrimary connects to a reachable address to find out whether it is that of a primary.
	IsPrimary func(ctx context.Context, addr string) bool

	// Moved is called after each change of the address, from Run's goroutine, with the old and the new address.
	Moved func(from, to string)

	// DownAfter is told the time after which Sentinels take a silent primary for down, when it is known and when it changes.
	DownAfter func(time.Duration)

	Logger *zap.Logger
}

// Watcher keeps the view of one primary.
type Watcher struct {
	opts    Options
	connect func(ctx context.Context, addr string) (net.Conn, error) // with a Sentinel
	results chan result
	event   chan struct{} // size 1: a Sentinel has told of a change
	chosen  chan rising   // size 1: a replica is being promoted
	asks    chan string   // size 1: this replica, by its address, is to be asked for its role
	risen   chan string   // it has become a primary

	replicas atomic.Int64 // the most that a Sentinel knows; 0: no Sentinel has answered
	down     atomic.Int64 // the longest down-after-milliseconds of a Sentinel, in nanoseconds; 0: it is not known
	old      atomic.Bool  // it has run for a second

	// Owned by Run.
	roster   *roster.Roster
	links    map[int]running // by the number of the Sentinel, as the next ones
	latest   map[int]said
	ignorant map[int]bool // Sentinels that do not know the name
	asked    time.Time
	ahead    time.Time // until then the view may be ahead of the Sentinels' answers
}

// said is the latest answer of a Sentinel.
type said struct {
	answer answers.Answer
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
		opts: opts, results: make(chan result), event: make(chan struct{}, 1), chosen: make(chan rising, 1), asks: make(chan string, 1), risen: make(chan string),
		links: map[int]running{}, latest: map[int]said{}, ignorant: map[int]bool{},
	}
	w.connect = func(ctx context.Context, addr string) (net.Conn, error) {
		return opts.Dialer.Dial(ctx, dial.Target{At: topology.Node(addr), ID: opts.ID})
	}
	var addrs []string
	for _, server := range opts.Sentinels {
		addrs = append(addrs, server.Addr)
	}
	w.roster = roster.New(addrs)
	return w
}

// start begins to ask a Sentinel.
func (w *Watcher) start(ctx context.Context, wg *sync.WaitGroup, m roster.Member) {
	ctx, stop := context.WithCancel(ctx)
	l := &link{
		number: m.Number, addr: m.Addr, name: w.opts.Name, reach: w.opts.Map, results: w.results, events: w.event, chosen: w.chosen,
		trouble: trouble{log: w.opts.Logger.With(zap.String("sentinel", m.Addr)), configured: m.Configured},
		connect: func(ctx context.Context) (net.Conn, error) { return w.connect(ctx, m.Addr) },
	}
	w.links[m.Number] = running{l, stop}
	wg.Go(func() { l.run(ctx) })
}

// end asks a Sentinel no more.
func (w *Watcher) end(number int) {
	w.links[number].stop()
	delete(w.links, number)
	delete(w.latest, number)
	delete(w.ignorant, number)
}

const (
	// pollEvery is the pause between two questions to a Sentinel without a reason. Sentinels do not promise to tell all events.
	pollEvery = time.Second
	// askEvery is the least time between two questions to a Sentinel.
	askEvery = 20 * time.Millisecond
	// answerLife is the time for which an answer stands without a newer one.
	answerLife = 3 * time.Second
	// firstLook is how long the first view waits for the answers of more Sentinels.
	firstLook = 200 * time.Millisecond
	// youth is the time for which it is no news that the address is not known.
	youth = time.Second
)

// Run follows the primary until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, m := range w.roster.Members() {
		w.start(ctx, &wg, m)
	}
	wg.Go(func() { w.watchPromotions(ctx) })
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
			if w.enlist(ctx, &wg, r) {
				w.note(r)
			}
			w.decide(time.Since(began) >= firstLook)
			continue
		case p := <-w.chosen:
			w.look(p)
			continue
		case addr := <-w.risen:
			w.precede(addr)
			continue
		case <-w.event:
		case <-w.opts.Primary.Doubts():
		case <-next.C:
			w.decide(true) // with the answers that are there, if some Sentinels do not answer
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

// Find returns when a view is known, in place of Run. The error says why there is none when ctx ends.
func (w *Watcher) Find(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { w.Run(ctx) })
	looks := time.NewTicker(askEvery)
	defer looks.Stop()
	for w.opts.Primary.View() == nil {
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
func (w *Watcher) enlist(ctx context.Context, wg *sync.WaitGroup, r result) (counts bool) {
	if r.err != nil {
		return true
	}
	if w.Young() { // the Sentinels of the configuration may be listed by other addresses, and have not told their ids yet
		r.peers = nil
	}
	counts, joins, leaves := w.roster.Answered(r.number, r.id, r.peers, time.Now())
	for _, m := range leaves {
		w.opts.Logger.Info("a sentinel is not asked any more that no configuration names", zap.String("sentinel", m.Addr))
		w.end(m.Number)
	}
	for _, m := range joins {
		w.opts.Logger.Info("another sentinel is asked that upstream.address does not name", zap.String("sentinel", m.Addr))
		w.start(ctx, wg, m)
	}
	return counts
}

// isBacked reports whether a Sentinel's word counts that a server is the primary: that of the configuration always does, that of another one if one
// more Sentinel knows the server.
func (w *Watcher) isBacked(by int, addr string) bool {
	if w.roster.Configured(by) {
		return true
	}
	for number, s := range w.latest {
		if number != by && time.Since(s.at) < answerLife && s.answer.Knows(addr) {
			return true
		}
	}
	return false
}

// note keeps the answer of a Sentinel.
func (w *Watcher) note(r result) {
	if r.err == nil {
		w.latest[r.number] = said{r.answer, time.Now()}
		delete(w.ignorant, r.number)
		return
	}
	if errors.Is(r.err, answers.ErrUnknownName) {
		delete(w.latest, r.number)
		if !w.ignorant[r.number] {
			w.opts.Logger.Warn("a sentinel does not know the primary", zap.String("name", w.opts.Name), zap.Error(r.err))
		}
		w.ignorant[r.number] = true
	}
	if w.opts.Primary.View() == nil {
		w.opts.Primary.Unknown(fmt.Errorf("%w: %v", topology.ErrUnknown, r.err)) //nolint:errorlint // a Sentinel's refusal is not one of Redis
	}
}

// decide publishes the view that follows from the latest answers. late says that the first view waits for no more answers.
func (w *Watcher) decide(late bool) {
	all, total := make([]answers.Answer, 0, len(w.latest)), 0
	counted := map[string]bool{} // a Sentinel with two addresses counts once
	for number, s := range w.latest {
		switch id := w.roster.ID(number); {
		case time.Since(s.at) >= answerLife:
			delete(w.latest, number)
		case !w.isBacked(number, s.answer.Addr):
		case id == "" || !counted[id]:
			counted[id] = true
			all = append(all, s.answer)
			total = max(total, s.answer.Sentinels)
		}
	}
	if total == 0 {
		total = len(w.links)
	}
	majority := min(total, len(w.links))/2 + 1
	present := view{}
	if v := w.opts.Primary.View(); v != nil {
		present = view{v.Epoch, v.Announced}
	} else if len(all) < majority && !late {
		return
	}
	refuted := w.opts.Primary.Refuted()
	next := elect(present, refuted, all, majority)
	if next.epoch == present.epoch && !refuted && time.Now().Before(w.ahead) {
		next = present
	}
	if next.addr == "" {
		return
	}
	w.weigh(all)
	if next != present {
		w.publish(next)
	}
}

func (w *Watcher) publish(next view) {
	from := ""
	if v := w.opts.Primary.View(); v != nil {
		from = v.Address
	}
	w.ahead = time.Time{}
	to := w.opts.Map.Of(next.addr)
	if w.opts.Primary.Publish(next.epoch, next.addr, to) {
		w.opts.Moved(from, to)
	}
}

// Replicas is how many replicas the primary has, by the word of the Sentinel that knows most. 0: it is not known. It may be called from any
// goroutine.
func (w *Watcher) Replicas() int { return int(w.replicas.Load()) }

// weigh notes how many replicas there are, and tells the longest time after which a Sentinel takes the primary for down.
func (w *Watcher) weigh(all []answers.Answer) {
	longest, replicas := time.Duration(0), 0
	for _, a := range all {
		longest, replicas = max(longest, a.DownAfter), max(replicas, a.Replicas)
	}
	if len(all) > 0 { // else those of before stand
		w.replicas.Store(int64(replicas))
	}
	if longest != 0 && w.down.Swap(int64(longest)) != int64(longest) {
		w.opts.DownAfter(longest)
	}
}
