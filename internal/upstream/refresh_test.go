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

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A node answers CLUSTER INFO, CLUSTER NODES and CLUSTER SLOTS.
type node struct {
	failed atomic.Bool // the last refresh of the first node's refresher
	addr   string
	asked  atomic.Int64 // times
	epoch  atomic.Int64
	config atomic.Int64            // epoch of its own configuration
	owner  atomic.Pointer[node]    // of all slots
	hold   chan struct{}           // an answer waits until it is closed; nil: none does
	slow   atomic.Int64            // nanoseconds for which it makes an answer
	listed atomic.Int64            // times that it was asked for CLUSTER SLOTS
	peers  atomic.Pointer[[]*node] // other members that it lists; nil: none
	moved  atomic.Int64            // the first slots, which the first of the peers has that is not the owner
	stop   func()
}

// startNode runs a node.
func startNode(t *testing.T, epoch int64) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{addr: l.Addr().String()}
	n.epoch.Store(epoch)
	n.owner.Store(n)
	s := redcon.NewServer(n.addr, n.answer, nil, nil)
	n.stop = sync.OnceFunc(func() {
		_ = s.Close()
		_ = l.Close() // a server that has not begun to serve does not know it
	})
	t.Cleanup(n.stop)
	go func() { _ = s.Serve(l) }()
	return n
}

func (n *node) answer(conn redcon.Conn, cmd redcon.Command) {
	if !strings.EqualFold(string(cmd.Args[0]), "cluster") {
		conn.WriteString("OK")
		return
	}
	if strings.EqualFold(string(cmd.Args[1]), "info") {
		n.asked.Add(1)
		if n.hold != nil {
			<-n.hold
		}
		time.Sleep(time.Duration(n.slow.Load()))
		conn.WriteBulkString(fmt.Sprintf("cluster_state:ok\r\ncluster_current_epoch:%d\r\n", n.epoch.Load()))
		return
	}
	owner := n.owner.Load()
	if strings.EqualFold(string(cmd.Args[1]), "nodes") {
		moved := n.moved.Load()
		lines := fmt.Sprintf("%s %s@1 master - 0 1 %d connected %d-16383\n", owner.addr, owner.addr, owner.config.Load(), moved)
		for _, one := range n.others() {
			slots := ""
			if moved > 0 {
				slots, moved = fmt.Sprintf(" 0-%d", moved-1), 0
			}
			lines += fmt.Sprintf("%s %s@1 master - 0 1 %d connected%s\n", one.addr, one.addr, one.config.Load(), slots)
		}
		conn.WriteBulkString(lines)
		return
	}
	n.listed.Add(1)
	moved := n.moved.Load()
	if moved == 0 {
		conn.WriteRaw(owner.slots([]byte("*1\r\n"), 0))
		return
	}
	conn.WriteRaw(owner.slots(n.others()[0].slots([]byte("*2\r\n"), 0), moved))
}

// others are the members that it lists besides the owner.
func (n *node) others() []*node {
	peers, owner := n.peers.Load(), n.owner.Load()
	if peers == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(*peers), func(one *node) bool { return one == owner })
}

// slots appends an element of CLUSTER SLOTS: a node has the slots from one on.
func (n *node) slots(b []byte, from int64) []byte {
	host, port, _ := net.SplitHostPort(n.addr)
	return fmt.Appendf(b, "*3\r\n:%d\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$%d\r\n%s\r\n", from, len(host), host, port, len(n.addr), n.addr)
}

// know makes nodes list each other.
func know(nodes ...*node) {
	for _, n := range nodes {
		n.peers.Store(&nodes)
	}
}

// startRefresher runs a refresher in front of some nodes.
func startRefresher(t *testing.T, nodes ...*node) (*viewRefresher, *topology.Cluster, context.CancelFunc) {
	t.Helper()
	return startLoggedRefresher(t, zap.NewNop(), nodes...)
}

func startLoggedRefresher(t *testing.T, log *zap.Logger, nodes ...*node) (*viewRefresher, *topology.Cluster, context.CancelFunc) {
	t.Helper()
	addrs := make([]string, len(nodes))
	for i, n := range nodes {
		addrs[i] = n.addr
	}
	at, err := topology.ParseAddress("cluster://" + strings.Join(addrs, ","))
	if err != nil {
		t.Fatal(err)
	}
	c := topology.NewCluster(at, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	r := newViewRefresher(viewRefresherOptions{
		Dialer:  dial.New(dial.Options{Resolver: c, Timeout: 3 * time.Second, KeepAlive: time.Minute, Spawn: running.Go, Stop: ctx.Done()}),
		Cluster: c, Own: dial.Identity{Proto: 2}, Logger: log, Changed: func() {}, Outcome: func(err error) { nodes[0].failed.Store(err != nil) },
	})
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	return r, c, cancel
}

// await returns when the view has been refreshed.
func await(r *viewRefresher) {
	told := make(chan struct{})
	r.Ask(topology.Any, func() { close(told) })
	<-told
}

func TestTheViewOfTheGreatestEpochIsTaken(t *testing.T) {
	a, b, c := startNode(t, 5), startNode(t, 6), startNode(t, 5)
	know(a, b, c)
	for _, n := range []*node{a, b, c} {
		n.owner.Store(a)
	}
	b.owner.Store(b) // it knows of a failover
	r, view, _ := startRefresher(t, a, b, c)
	shows := func(epoch uint64, owner *node) func() bool {
		return func() bool { // a node on a busy machine may answer too late for one question
			await(r)
			v := view.View()
			return v.Epoch == epoch && v.Owner(0).ID == owner.addr
		}
	}
	redistest.Eventually(t, 10*time.Second, "the view of b", shows(6, b))
	b.stop() // the others do not know yet, and b does not answer any more
	for range 3 {
		await(r)
	}
	if v := view.View(); v.Epoch != 6 || v.Owner(0).ID != b.addr {
		t.Errorf("an older view has replaced a newer one: epoch %d, slot 0 at %s", v.Epoch, v.Owner(0).ID)
	}
	a.epoch.Store(7)
	a.owner.Store(c)
	redistest.Eventually(t, 10*time.Second, "the view of a", shows(7, c))
	if a.failed.Load() {
		t.Error("a question that was answered counts as failed")
	}
}

func TestNoAnswerOfTheSameEpochIsAStepBack(t *testing.T) {
	a, b := startNode(t, 5), startNode(t, 5)
	a.config.Store(3)
	b.config.Store(5) // it has got the slots of a, which does not know it yet
	r, view, _ := startRefresher(t, b)
	await(r)
	if v := view.View(); v.Owner(0).ID != b.addr {
		t.Fatalf("slot 0 at %s", v.Owner(0).ID)
	}
	late := startNode(t, 5)
	know(a, b, late)
	late.owner.Store(a)
	b.owner.Store(late) // which b names as its successor
	late.config.Store(6)
	b.epoch.Store(6)
	await(r)
	late.epoch.Store(6) // and the question goes there
	for range 3 {
		await(r)
		if v := view.View(); v.Owner(0).ID != late.addr {
			t.Errorf("an older view of the same epoch counts: slot 0 at %s", v.Owner(0).ID)
		}
	}
}

// Slots that move one after the other have one entry for each epoch.
func TestAChangeIsLoggedOnce(t *testing.T) {
	a, b := startNode(t, 5), startNode(t, 5)
	know(a, b)
	b.owner.Store(a)
	core, logs := observer.New(zap.InfoLevel)
	r, view, _ := startLoggedRefresher(t, zap.New(core), a, b)
	await(r)
	var want []uint64
	want = append(want, 5)
	for epoch := int64(6); epoch < 8; epoch++ {
		for range 20 {
			for _, n := range []*node{a, b} {
				n.epoch.Store(epoch)
				n.config.Store(epoch)
				n.moved.Add(1)
			}
			await(r)
			await(r) // the answers of the first one may be older
			if slot := int(a.moved.Load()) - 1; view.View().Owner(slot).ID != b.addr {
				t.Fatalf("slot %d at %s", slot, view.View().Owner(slot).ID)
			}
		}
		want = append(want, uint64(epoch))
	}
	var got []uint64
	for _, entry := range logs.FilterMessage("the cluster has changed").All() {
		got = append(got, entry.ContextMap()["epoch"].(uint64))
	}
	if !slices.Equal(got, want) {
		t.Errorf("entries for the epochs %v, want %v", got, want)
	}
}

func TestManySignsOfChangeAreOneQuestion(t *testing.T) {
	n := startNode(t, 1)
	r, _, _ := startRefresher(t, n)
	await(r)
	n.hold = make(chan struct{})
	before := n.asked.Load()
	var told sync.WaitGroup
	for range 1000 {
		told.Add(1)
		r.Ask(topology.Node(n.addr), told.Done)
	}
	close(n.hold)
	told.Wait()
	if asked := n.asked.Load() - before; asked > 4 { // two refreshes, each of which asks the node by its ID and as the seed
		t.Errorf("1,000 signs of change are %d questions", asked)
	}
}

func TestSlowNodesAreAskedLessOften(t *testing.T) {
	n := startNode(t, 1)
	r, _, _ := startRefresher(t, n)
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
	if listed := n.listed.Load(); listed > 1 {
		t.Errorf("CLUSTER SLOTS was asked %d times", listed)
	}
}

func TestNoCallerWaitsForARefresherThatHasEnded(t *testing.T) {
	n := startNode(t, 1)
	n.hold = make(chan struct{})
	r, _, cancel := startRefresher(t, n)
	told := make(chan struct{})
	r.Ask(topology.Any, func() { close(told) })
	cancel()
	<-told
	close(n.hold)
}
