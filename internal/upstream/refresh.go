package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// viewRefresherOptions name the servers that are asked, and the parts of the proxy that are told. All are required.
type viewRefresherOptions struct {
	Dialer  *dial.Dialer
	Cluster *topology.Cluster
	Own     dial.Identity
	Logger  *zap.Logger
	Changed func()          // called by Run after the view has changed
	Outcome func(err error) // called by Run after each refresh; nil: a node has answered
}

// A viewRefresher keeps the view of a cluster fresh. All methods but Run may be called from any goroutine.
//
// It asks some nodes at a time, and takes the latest owner of each slot. However many sessions see a sign of change,
// one question is on its way, and one follows it.
//
// It has one goroutine, Run, and for a moment one for each node that is asked.
type viewRefresher struct {
	opts  viewRefresherOptions
	book  topology.Book
	wake  chan struct{} // size 1, never closed: a refresh is wanted
	cost  time.Duration // of the last refresh until the first answer, for Run
	all   bool          // the next refresh asks all servers, for Run
	last  error         // why the last refresh has failed, for Run
	noted               // what the log says of the view, for Run

	asking sync.WaitGroup // questions on their way

	asked, changed atomic.Int64

	mu      sync.Mutex
	waiting []func()               // called after the next refresh
	hints   map[topology.Node]bool // nodes that should know
}

// newViewRefresher returns a refresher that does nothing before Run.
func newViewRefresher(o viewRefresherOptions) *viewRefresher {
	return &viewRefresher{opts: o, wake: make(chan struct{}, 1), hints: map[topology.Node]bool{}}
}

// Ask has then called from another goroutine after a refresh that has begun after this call. hint is a node that should
// know what has changed; Any: none. then may be nil.
func (r *viewRefresher) Ask(hint topology.Node, then func()) {
	r.mu.Lock()
	if then != nil {
		r.waiting = append(r.waiting, then)
	}
	if hint != topology.Any && len(r.hints) < maxHints {
		r.hints[hint] = true
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

const (
	// maxHints bounds the nodes that one refresh asks on account of hints.
	maxHints = 4

	// hintsAtOnce is the number of nodes that a refresh asks at least.
	hintsAtOnce = 3

	// calmGap is about the time between two refreshes without a reason, while the cluster serves all slots; else it is
	// troubledGap.
	calmGap, troubledGap = 5 * time.Second, 100 * time.Millisecond

	// The gap is the least time between two refreshes: nodes make their answers anew for each question. It is at least
	// some times what the last refresh has cost, up to a limit: nodes whose slots are in thousands of ranges, or that
	// are busy, have to serve commands, too.
	leastGap, refreshCosts, mostGap = 10 * time.Millisecond, 4, 250 * time.Millisecond

	// refreshPatience bounds the wait for a node's answer. otherServers is the wait for the others after the first
	// good answer.
	refreshPatience, otherServers = time.Second, 50 * time.Millisecond
)

// Counts are the numbers of refreshes, and of those that found a change, since the start.
func (r *viewRefresher) Counts() (asked, changed int64) { return r.asked.Load(), r.changed.Load() }

// Run refreshes the view when it is asked to and from time to time, until ctx ends.
func (r *viewRefresher) Run(ctx context.Context) {
	defer r.asking.Wait()
	for {
		r.refresh(ctx)
		period := calmGap
		if v := r.opts.Cluster.View(); !v.OK || !v.Covered() || r.last != nil {
			period = troubledGap
		}
		gap := max(leastGap, min(refreshCosts*r.cost, mostGap))
		if !sleep(ctx, gap, nil) || !sleep(ctx, period*3/4+rand.N(period/2), r.wake) {
			r.tell() // no session waits for ever
			return
		}
	}
}

// sleep ends early when wake has something. false: ctx has ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// tell takes the waiting functions and calls them.
func (r *viewRefresher) tell() {
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

func (r *viewRefresher) refresh(ctx context.Context) {
	r.mu.Lock()
	waiting, hints := r.waiting, r.hints
	r.waiting, r.hints = nil, map[topology.Node]bool{}
	r.mu.Unlock()
	present := r.opts.Cluster.View()
	r.asked.Add(1)
	answers, err := r.gather(ctx, r.choose(present, hints))
	view, outcome := topology.Merge(present, r.opts.Cluster.Seeds(), answers)
	r.settle(outcome)
	r.last = err
	if ctx.Err() == nil {
		r.opts.Outcome(err)
	}
	if changed := !view.Same(present); changed || view.Epoch != present.Epoch || view.OK != present.OK {
		r.opts.Cluster.Show(view)
		if changed {
			r.changed.Add(1)
			r.note(view)
			r.opts.Changed()
		}
	}
	for _, f := range waiting {
		f()
	}
}

// noted is what an entry of the log says of a view. Slots that move one after the other within an epoch have one entry.
type noted struct {
	epoch     uint64
	primaries []topology.ClusterNode
	covered   bool
}

func (r *viewRefresher) note(v *topology.View) {
	now := noted{v.Epoch, v.Nodes(), v.Covered()}
	if now.epoch == r.epoch && now.covered == r.covered && slices.Equal(now.primaries, r.primaries) {
		return
	}
	r.noted = now
	r.opts.Logger.Info("the cluster has changed",
		zap.Uint64("epoch", now.epoch), zap.Int("primaries", len(now.primaries)), zap.Bool("covered", now.covered))
}

// choose returns the nodes to ask: those of the hints, and others up to a number. Seeds are asked if nothing else is
// known, or if the nodes do not answer.
func (r *viewRefresher) choose(v *topology.View, hints map[topology.Node]bool) []topology.Node {
	var nodes []topology.Node
	for hint := range hints {
		nodes = append(nodes, hint)
	}
	var rest []topology.Node
	for _, n := range v.Servers() {
		if !hints[topology.Node(n.ID)] {
			rest = append(rest, topology.Node(n.ID))
		}
	}
	if len(rest) == 0 || r.last != nil {
		rest = append(rest, r.opts.Cluster.Seeds()...)
	}
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	if n := max(hintsAtOnce-len(nodes), 1); r.last == nil && !r.all && len(rest) > n {
		rest = rest[:n]
	}
	return append(nodes, rest...)
}

var errNone = errors.New("no node to ask")

// settle has all servers asked next if some speak of other servers than the view has, and reports a cluster that is
// another one.
func (r *viewRefresher) settle(outcome topology.Outcome) {
	r.all = outcome == topology.Doubtful && !r.all
	if r.all {
		r.Ask(topology.Any, nil)
	}
	if outcome == topology.Anew {
		r.opts.Logger.Warn("servers of the cluster were created anew: their slots are followed, whatever their epochs")
	}
}

// gather asks nodes at the same time. After the first good answer it waits for the others a moment only. An error means
// that none has answered.
func (r *viewRefresher) gather(ctx context.Context, nodes []topology.Node) (good []topology.Answer, err error) {
	type reply struct {
		topology.Answer
		err error
	}
	ctx, cancel := context.WithTimeout(ctx, refreshPatience)
	defer cancel()
	replies := make(chan reply, len(nodes))
	for _, n := range nodes {
		r.asking.Go(func() {
			a, err := r.ask(ctx, n)
			replies <- reply{a, err}
		})
	}
	begin := time.Now()
	r.cost, err = 0, errNone
	var late <-chan time.Time // once a node has answered
	for range nodes {
		select {
		case a := <-replies:
			if a.err != nil {
				if late == nil {
					err = a.err
				}
				continue
			}
			if late == nil { // the first good answer
				r.cost = time.Since(begin)
				err, late = nil, time.After(otherServers)
			}
			good = append(good, a.Answer)
		case <-late:
			return good, nil
		case <-ctx.Done():
			if late == nil {
				err = ctx.Err()
			}
			return good, err
		}
	}
	return good, err
}

// ask asks one node, on a connection of its own.
func (r *viewRefresher) ask(ctx context.Context, at topology.Node) (a topology.Answer, err error) {
	nc, err := r.opts.Dialer.Dial(ctx, dial.Target{At: at, ID: r.opts.Own})
	if err != nil {
		return a, err
	}
	defer r.opts.Dialer.HangUp(nc)
	info, err := r.question(nc, "INFO")
	if err != nil {
		return a, err
	}
	answer, err := r.question(nc, "NODES")
	if err != nil {
		return a, err
	}
	told, err := topology.ReadNodes(string(answer.Str))
	if err != nil {
		return a, err
	}
	if !r.book.Fill(told, time.Now()) {
		answer, err := r.question(nc, "SLOTS")
		if err != nil {
			return a, err
		}
		addresses, err := topology.ReadAddresses(answer, nc.RemoteAddr().String())
		if err != nil {
			return a, err
		}
		r.book.Learn(told, addresses, time.Now())
	}
	return topology.Answer{View: told.View(string(info.Str)), Asked: at}, nil
}

func (r *viewRefresher) question(nc net.Conn, about string) (resp.Value, error) {
	raw, err := r.opts.Dialer.Ask(nc, "CLUSTER", about)
	if err != nil {
		return resp.Value{}, err
	}
	v, _, err := resp.Decode(raw)
	if err == nil && v.IsError() {
		err = &dial.RefusedError{Reply: string(v.Str)}
	}
	return v, err
}
