package upstream

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
	"github.com/lockproxy/lockproxy/internal/upstream/topology/clustertest"
)

// A node answers CLUSTER INFO, CLUSTER NODES and CLUSTER SLOTS: it serves all slots.
type node struct {
	failed atomic.Bool // the last refresh
	addr   string
	asked  atomic.Int64  // times
	hold   chan struct{} // an answer waits until it is closed; nil: none does
	slow   atomic.Int64  // nanoseconds for which it makes an answer
	listed atomic.Int64  // times that it was asked for CLUSTER SLOTS
}

// startNode runs a node.
func startNode(t *testing.T) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{addr: l.Addr().String()}
	s := redcon.NewServer(n.addr, n.answer, nil, nil)
	t.Cleanup(func() {
		_ = s.Close()
		_ = l.Close() // a server that has not begun to serve does not know it
	})
	go func() { _ = s.Serve(l) }()
	return n
}

func (n *node) answer(conn redcon.Conn, cmd redcon.Command) {
	if !strings.EqualFold(string(cmd.Args[0]), "cluster") {
		conn.WriteString("OK")
		return
	}
	switch strings.ToLower(string(cmd.Args[1])) {
	case "info":
		n.asked.Add(1)
		if n.hold != nil {
			<-n.hold
		}
		time.Sleep(time.Duration(n.slow.Load()))
		conn.WriteBulkString("cluster_state:ok\r\ncluster_current_epoch:1\r\n")
	case "nodes":
		conn.WriteBulkString("a " + n.addr + "@1 myself,master - 0 1 1 connected 0-16383\n")
	default:
		n.listed.Add(1)
		host, port, _ := net.SplitHostPort(n.addr)
		conn.WriteRaw(fmt.Appendf(nil, "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\na\r\n", len(host), host, port))
	}
}

// refresherOf returns a refresher in front of a node, and the context of its Run.
func refresherOf(t *testing.T, n *node) (r *viewRefresher, ctx context.Context, cancel context.CancelFunc) {
	t.Helper()
	at, err := topology.ParseAddress("cluster://" + n.addr)
	if err != nil {
		t.Fatal(err)
	}
	c := topology.NewCluster(at, nil)
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	ctx, cancel = context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return newViewRefresher(viewRefresherOptions{
		Dialer:  dial.New(dial.Options{Resolver: c, Timeout: 3 * time.Second, KeepAlive: time.Minute, Spawn: running.Go, Stop: ctx.Done()}),
		Cluster: c, Own: dial.Identity{Proto: 2}, Logger: zap.NewNop(), Changed: func() {}, Outcome: func(err error) { n.failed.Store(err != nil) },
	}), ctx, cancel
}

// startRefresher runs a refresher in front of a node.
func startRefresher(t *testing.T, n *node) (*viewRefresher, context.CancelFunc) {
	t.Helper()
	r, ctx, cancel := refresherOf(t, n)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r, cancel
}

// await returns when the view has been refreshed.
func await(r *viewRefresher) {
	told := make(chan struct{})
	r.Ask(topology.Any, func() { close(told) })
	<-told
}

// Servers of the view that do not answer, and a seed that knows less, change nothing.
func TestAnOlderAnswerChangesNothing(t *testing.T) {
	r, ctx, _ := refresherOf(t, startNode(t))
	v := clustertest.View(t,
		clustertest.Share{ID: "a", Address: "127.0.0.1:1", To: 99},
		clustertest.Share{ID: "b", Address: "127.0.0.1:1", From: 100, To: 16383})
	v.Epoch = 7
	r.opts.Cluster.Show(v)
	r.refresh(ctx)
	if r.last == nil {
		t.Error("a question that no server has answered does not count as failed")
	}
	r.refresh(ctx) // asks the seed as well
	if now := r.opts.Cluster.View(); r.last != nil || now.Epoch != 7 || now.Owner(200).ID != "b" {
		t.Errorf("%v; epoch %d, slot 200 at %s", r.last, now.Epoch, now.Owner(200).ID)
	}
}

// Slots that move one after the other have one entry for each epoch, and one more when all slots are served again.
func TestAChangeIsLoggedOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	r := newViewRefresher(viewRefresherOptions{Logger: zap.New(core)})
	for epoch := range uint64(3) {
		for limit := range 20 {
			v := clustertest.Split(t, 1+limit)
			v.Epoch = epoch
			r.note(v)
		}
	}
	gap := clustertest.View(t, clustertest.Share{ID: "a", Address: "h:1", To: 99}, clustertest.Share{ID: "b", Address: "h:2", From: 101, To: 16383})
	gap.Epoch = 2
	r.note(gap)
	var got []string
	for _, entry := range logs.FilterMessage("the cluster has changed").All() {
		got = append(got, fmt.Sprint(entry.ContextMap()["epoch"], entry.ContextMap()["covered"]))
	}
	if want := []string{"0 true", "1 true", "2 true", "2 false"}; !slices.Equal(got, want) {
		t.Errorf("entries %q, want %q", got, want)
	}
}

func TestManySignsOfChangeAreOneQuestion(t *testing.T) {
	n := startNode(t)
	r, _ := startRefresher(t, n)
	await(r)
	n.hold = make(chan struct{})
	before := n.asked.Load()
	var told sync.WaitGroup
	for range 1000 {
		told.Add(1)
		r.Ask("a", told.Done)
	}
	close(n.hold)
	told.Wait()
	if asked := n.asked.Load() - before; asked > 4 { // two refreshes, each of which asks the node by its ID and as the seed
		t.Errorf("1,000 signs of change are %d questions", asked)
	}
}

func TestSlowNodesAreAskedLessOften(t *testing.T) {
	n := startNode(t)
	r, _ := startRefresher(t, n)
	await(r)
	const slow, times = 20 * time.Millisecond, 5
	n.slow.Store(int64(slow))
	await(r)
	begin := time.Now()
	for range times {
		await(r)
	}
	if took := time.Since(begin); took < (times-1)*(1+refreshCosts)*slow { // the first pause has begun before
		t.Errorf("%d questions to a node that needs %v for each took %v", times, slow, took)
	}
	if listed := n.listed.Load(); listed > 1 || n.failed.Load() {
		t.Errorf("CLUSTER SLOTS was asked %d times; failed: %v", listed, n.failed.Load())
	}
}

func TestNoCallerWaitsForARefresherThatHasEnded(t *testing.T) {
	n := startNode(t)
	n.hold = make(chan struct{})
	r, cancel := startRefresher(t, n)
	told := make(chan struct{})
	r.Ask(topology.Any, func() { close(told) })
	cancel()
	<-told
	close(n.hold)
}
