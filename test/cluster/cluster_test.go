package cluster

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A cluster takes seconds to start, so the tests that leave it as it is share one.
func TestOverACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--enable-debug-command", "yes", "--cluster-node-timeout", "5000") // a busy machine is no failure
	alone := redistest.Start(t)
	srv := proxytest.StartOverCluster(t, c)
	t.Run("commands", func(t *testing.T) { sameReplies(t, alone, c, srv) })
	t.Run("transactions", func(t *testing.T) { sameTransactions(t, alone, c, srv) })
	t.Run("watched", func(t *testing.T) { aWatchedSlotMoves(t, c, srv) })
	t.Run("subscribers", func(t *testing.T) { subscribersGiveConnectionsBack(t, c, srv) })
	t.Run("subscriptions", func(t *testing.T) { subscriptionsAreCounted(t, alone, c, srv) })
	t.Run("listeners", func(t *testing.T) { aListenerUsesAllServers(t, c, srv) })
	t.Run("moving subscriptions", func(t *testing.T) { aSubscriptionEndsWithItsSlot(t, c, srv) })
	t.Run("too many keys", func(t *testing.T) { tooManyKeysAreRefused(t, srv) })
	t.Run("wait", func(t *testing.T) { waitIsRefused(t, srv) })
	t.Run("pipelines", func(t *testing.T) { pipelinesKeepOrder(t, srv) })
	t.Run("behind a watch", func(t *testing.T) { allKeysBehindWatch(t, srv) })
	t.Run("whole transactions", func(t *testing.T) { everyCommandOfATransactionIsKept(t, alone, c, srv) })
	t.Run("long transactions", func(t *testing.T) { aLongTransactionIsWhole(t, srv) })
	t.Run("moving transactions", func(t *testing.T) { aTransactionFollowsItsSlot(t, c) })
	t.Run("refused transactions", func(t *testing.T) { aTransactionThatIsRefusedRunsNot(t, c, srv) })
	t.Run("one server", func(t *testing.T) { nothingConcernsAllServersInATransaction(t, c, srv) })
	t.Run("no owner", func(t *testing.T) { aSlotWithoutAnOwnerIsNoRedirection(t, c) })
	t.Run("large commands", func(t *testing.T) { largeCommandsAreStreamed(t, c) })
	t.Run("large commands and moves", func(t *testing.T) { largeCommandsOfAMovingSlotAreRefused(t, c) })
	t.Run("many keys", func(t *testing.T) { commandsOfManyKeysLeaveTurns(t, c) })
	t.Run("transaction without a pin", func(t *testing.T) { noPartOfATransactionRunsAlone(t, c) })
	t.Run("scripts", func(t *testing.T) { scriptsDoNotRedirect(t, c, srv) })
	t.Run("blocking", func(t *testing.T) { aBlockingCommandFollowsItsSlotAgain(t, c) })
	t.Run("pipelines in a half moved slot", func(t *testing.T) { pipelinesCrossAHalfMovedSlot(t, c) })
	t.Run("moving streams", func(t *testing.T) { aReaderFollowsItsStream(t, c, srv) })
	t.Run("half moved", func(t *testing.T) { commandsAwaitTheMove(t, c, srv) })
	t.Run("cluster down", func(t *testing.T) { commandsAwaitTheSlot(t, c) })
	t.Run("unknown owner", func(t *testing.T) { commandsOnPinsAwaitAnOwner(t, c) })
	t.Run("clients", func(t *testing.T) { clientsAreEndedAtTheirServers(t, c, srv) })
	t.Run("pause", func(t *testing.T) { aPauseConcernsAllServers(t, alone, c, srv) })
	t.Run("loading", func(t *testing.T) { commandsAwaitTheData(t, c) })
	t.Run("logins", func(t *testing.T) { oneServerDemandsALogin(t, c) })
	t.Run("try out", func(t *testing.T) { addressesAreOfTheirKind(t, alone, c) })
	t.Run("several servers", func(t *testing.T) { serversAreUsedAtOnce(t, c) })
	t.Run("barrier", func(t *testing.T) { anUnlockIsABarrier(t, c, srv) })
	t.Run("silent server", func(t *testing.T) { newClientsNeedNoSilentServer(t, c, srv) })
}

// sameAsAlone runs a script against one Redis and against the proxy in front of a cluster, and compares what the clients got.
func sameAsAlone(t *testing.T, alone *redistest.Server, c *redistest.Cluster, srv *proxytest.Proxy, script func(s *proxytest.Side)) {
	t.Helper()
	run := func(title, addr string) []string {
		for _, node := range append([]*redistest.Server{alone}, c.Nodes[:c.Primaries]...) {
			node.Do(t, "FLUSHALL")
			node.Do(t, "SCRIPT", "FLUSH")
			node.Do(t, "FUNCTION", "FLUSH")
		}
		s := &proxytest.Side{T: t, Redis: alone, Addr: addr, Title: title}
		script(s)
		s.Close()
		return s.Transcript
	}
	direct := run("alone", alone.Addr())
	if diff := cmp.Diff(direct, run("proxy", srv.Addr())); diff != "" {
		t.Errorf("replies differ (-alone +proxy):\n%s", diff)
	}
}

func sameReplies(t *testing.T, alone *redistest.Server, c *redistest.Cluster, srv *proxytest.Proxy) {
	for proto := 2; proto <= 3; proto++ {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			sameAsAlone(t, alone, c, srv, func(s *proxytest.Side) {
				a := s.Speaking("a", proto)
				for _, line := range []string{
					"PING", "SET a 1", "SET b 2", "SET c 3", "INCR a", "MGET a b c missing a", "MSET d 4 e 5 f 6 d 7", "MGET d e f", "EXISTS a b c x a", "TOUCH a b x",
					"DEL a b x", "UNLINK c d x", "DBSIZE", "MSET k", "MSET k 1 j", "MGET", "EXISTS", "GET", "LPUSH l 1 2 3", "MGET l e",
					"EVAL return{KEYS[1],ARGV[1]} 1 e x", "EVAL return{1,2} 0", "SCRIPT LOAD return{7}", "SCRIPT EXISTS 00 5a4ddbd8e4a85c1a0ae9c2f8b0ad0dd0e2b3ae06",
					"EVALSHA 00 0", "RANDOMKEY x", "OBJECT ENCODING e", "TYPE l", "ZADD z 1 a 2 b", "ZUNION 1 z", "RENAME e {e}2", "SORT l", "XADD st 1-1 f v", "XREAD STREAMS st 0",
					"XRANGE st - +", "BITOP AND {q}1 {q}2", "CLUSTER INFO", "CLUSTER", "READONLY", "ECHO x", "SCAN x", "PUBLISH ch m", "PUBSUB NUMSUB ch", "PUBSUB NUMPAT",
					"FLUSHALL", "DBSIZE", "RANDOMKEY", "KEYS *", "CLIENT NOSUCH x", "CONFIG SET slowlog-max-len 100", "CONFIG GET slowlog-max-len", "NOSUCH a b", "BLPOP l 0.01", "SPUBLISH ch m",
					"LMPOP 4294967297 a LEFT", "LMPOP 4294967297 b LEFT", "LMPOP 4294967297 c LEFT", "FCALL f 1x a", "FCALL f 1x b", "FCALL f 1x c", // Redis finds keys
				} {
					a.Do(strings.Fields(line)...)
				}
			})
		})
	}
}

func sameTransactions(t *testing.T, alone *redistest.Server, c *redistest.Cluster, srv *proxytest.Proxy) {
	for proto := 2; proto <= 3; proto++ {
		t.Run(fmt.Sprintf("RESP%d", proto), func(t *testing.T) {
			sameAsAlone(t, alone, c, srv, func(s *proxytest.Side) {
				s.HideHelloID()
				a, b := s.Speaking("a", proto), s.Speaking("b", proto)
				lines := func(p *proxytest.Client, all string) {
					for line := range strings.SplitSeq(all, "\n") {
						p.Do(strings.Fields(line)...)
					}
				}
				for _, key := range []string{"a", "b", "c"} { // on all servers
					lines(a, strings.ReplaceAll("MULTI\nSET K 1\nPING\nINCR K\nEXEC\nMULTI\nPING\nSET K 5\nDISCARD\nGET K\nWATCH K\nGET K\nMULTI\nINCR K\nEXEC", "K", key))
					lines(a, strings.ReplaceAll("WATCH K\nGET K", "K", key))
					b.Do("SET", key, "9")
					lines(a, strings.ReplaceAll("MULTI\nINCR K\nEXEC\nMULTI\nINCR K\nNOSUCH\nEXEC\nEXEC\nMULTI\nMULTI\nEXEC\nMULTI\nPING\nEXEC", "K", key))
					lines(a, strings.ReplaceAll("WATCH K\nGET other\nSET other x\nUNWATCH\nWATCH K\nGET other2\nMULTI\nGET K\nEXEC", "K", key))
					a.Raw(strings.ReplaceAll("MULTI\r\nSET K 3\r\nINCR K\r\nEXEC\r\nGET K\r\nMULTI\r\nGET K\r\nDISCARD\r\nGET z\r\n", "K", key))
					a.Expect(9)
					b.Send("BLPOP", "list"+key, "0")
					proxytest.AwaitBlocked(t, 1, append(c.Nodes[:c.Primaries:c.Primaries], alone)...)
					a.Do("RPUSH", "list"+key, "v")
					b.Expect(1)
					b.Do("BLPOP", "list"+key, "0.01")
					lines(b, strings.ReplaceAll("XADD sK 1-1 f v\nXREAD BLOCK 10 STREAMS sK 0\nXREAD BLOCK 10 STREAMS sK $\nBLMOVE xK{K} K{K} LEFT LEFT 0.01\nXGROUP CREATE sK g 0", "K", key))
				}
				a.Each("HELLO", "HELLO "+strconv.Itoa(proto))
			})
		})
	}
}

// CLIENT PAUSE holds back the writes of all servers, not the reads, until CLIENT UNPAUSE.
func aPauseConcernsAllServers(t *testing.T, alone *redistest.Server, c *redistest.Cluster, srv *proxytest.Proxy) {
	keys := []string{"a", "b", "c"} // one for each primary
	admin, reader := srv.Dial(t), srv.Dial(t)
	admin.Script("CLIENT PAUSE 60000 WRITE", "+OK")
	var writers []*proxytest.Client
	for i, key := range keys {
		w := srv.Dial(t)
		w.Send("SET", key, "paused")
		proxytest.AwaitBlocked(t, i+1, append(c.Nodes[:c.Primaries:c.Primaries], alone)...)
		writers = append(writers, w)
		if got := reader.Quiet("GET", key); got == "$6\r\npaused\r\n" {
			t.Errorf("%s was written: %q", key, got)
		}
	}
	admin.Script("CLIENT UNPAUSE", "+OK")
	for _, w := range writers {
		w.Gets("+OK")
	}
}

// subscribersGiveConnectionsBack has clients subscribe and unsubscribe over and over.
func subscribersGiveConnectionsBack(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	accepted := func() (n int) {
		for _, node := range c.Nodes {
			n += node.Info(t, "stats", "total_connections_received:")
		}
		return n
	}
	shard := proxytest.KeyOf(t, c, c.Nodes[0]) // where all channels are
	before := accepted()
	for range 10 {
		p := srv.Dial(t)
		for range 20 {
			p.Raw(proxytest.Inline("SUBSCRIBE a b", "SSUBSCRIBE "+shard, "UNSUBSCRIBE", "SUNSUBSCRIBE "+shard))
			p.Gets("*3", "*3", "*3", "*3", "*3", "*3")
			p.Script("PING", "+PONG")
		}
		_ = p.Conn.Close()
	}
	if n := accepted() - before; n > 60 {
		t.Errorf("200 times a few subscriptions have taken %d connections to the servers", n)
	}
}

func pipelinesKeepOrder(t *testing.T, srv *proxytest.Proxy) {
	p := srv.Dial(t)
	const n = 3000
	var in strings.Builder
	for i := range n {
		fmt.Fprintf(&in, "SET order:%d %d\r\nGET order:%d\r\n", i, i, i)
	}
	go p.Raw(in.String())
	for i := range n {
		p.Gets("+OK", fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i))
	}
	if got := p.Quiet("DBSIZE"); got == ":0\r\n" {
		t.Error("no keys")
	}
}

// noPartOfATransactionRunsAlone: a large transaction may find no pin.
func noPartOfATransactionRunsAlone(t *testing.T, c *redistest.Cluster) {
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient, func(o *proxy.Options) { o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 1, 50*time.Millisecond })
	key := proxytest.KeyOf(t, c, c.Nodes[0])
	c.Nodes[0].Do(t, "DEL", key)
	p, rival := srv.Dial(t), srv.Dial(t)
	rival.Send("BLPOP", "list", "0")
	proxytest.AwaitBlocked(t, 1, c.Nodes[:c.Primaries]...)
	p.Script("MULTI", "+OK")
	for range mostQueued + 1 {
		p.Script("SET "+key+" x", "+QUEUED")
	}
	p.Script("EXEC", "-OVERLOADED ", "GET "+key, "$-1", "MULTI", "+OK", "GET "+key, "+QUEUED", "EXEC", "*1\r\n$-1")
	_ = rival.Conn.Close()
}

// allKeysBehindWatch: a connection of its own, which a session has for its WATCH, is that of one server.
func allKeysBehindWatch(t *testing.T, srv *proxytest.Proxy) {
	p := srv.Dial(t)
	p.Quiet("FLUSHALL")
	const n = 60
	for i := range n {
		p.Quiet("SET", fmt.Sprint("key:", i), "x")
	}
	p.Quiet("WATCH", "key:0")
	p.Script("DBSIZE", fmt.Sprintf(":%d\r\n", n), "KEYS key:*", fmt.Sprintf("*%d\r\n", n))
	p.Script("MGET key:0 key:1 key:2", "*3\r\n$1\r\nx\r\n$1\r\nx\r\n$1\r\nx\r\n")
	found, cursor := 0, "0"
	for range 100 {
		v, _, err := resp.Decode([]byte(p.Quiet("SCAN", cursor, "COUNT", "20")))
		if err != nil || len(v.Elems) != 2 {
			t.Fatalf("SCAN: %v, %v", v, err)
		}
		found += len(v.Elems[1].Elems)
		if cursor = string(v.Elems[0].Str); cursor == "0" {
			break
		}
	}
	if found != n || cursor != "0" {
		t.Errorf("SCAN found %d of %d keys", found, n)
	}
	p.Quiet("MULTI")
	for _, verb := range []string{"SCAN 0", "KEYS *", "DBSIZE", "FLUSHALL"} {
		p.Script(verb, "-CROSSSLOT ")
	}
	p.Script("EXEC", "-EXECABORT ")
	for _, verb := range []string{"DBSIZE", "LOCK l", "GET"} {
		for i := range 3 { // on each server
			p.Raw(fmt.Sprintf("MULTI\r\n%s\r\nGET key:%d\r\nEXEC\r\nDBSIZE\r\n", verb, i))
			var all string
			for range 5 {
				got, err := p.Frame()
				if err != nil {
					t.Fatal(err)
				}
				all += got[:1]
			}
			if all != "+-+-:" {
				t.Errorf("%s and a key in one transaction: %q", verb, all)
			}
		}
	}
}

// A mover moves slots from node to node, as redis-cli does.
type mover struct {
	t     testing.TB
	c     *redistest.Cluster
	owner [redistest.Slots]int
}

func newMover(t testing.TB, c *redistest.Cluster) *mover {
	m := &mover{t: t, c: c}
	for i := range c.Primaries {
		for slot := i * redistest.Slots / c.Primaries; slot < (i+1)*redistest.Slots/c.Primaries; slot++ {
			m.owner[slot] = i
		}
	}
	return m
}

// to is the move of a slot from its owner to another node.
func (m *mover) to(slot, to int) redistest.Move {
	return redistest.Move{Cluster: m.c, Slot: slot, From: m.c.Nodes[m.owner[slot]], To: m.c.Nodes[to]}
}

// begin makes a slot importing and migrating.
func (m *mover) begin(slot, to int) { m.to(slot, to).Begin() }

// keys moves the keys of a slot.
func (m *mover) keys(slot, to int) { m.to(slot, to).Keys() }

// tell makes the target the owner of a slot. A move to another node must wait until all nodes know; see Move.End.
func (m *mover) tell(slot, to int) (done redistest.Move) {
	done = m.to(slot, to)
	done.Tell()
	m.owner[slot] = to
	return done
}

// end makes the target the owner of a slot, and returns when all nodes know.
func (m *mover) end(slot, to int) {
	done := m.tell(slot, to)
	done.Await()
}

func (m *mover) move(slot, to int) {
	if m.owner[slot] == to {
		return
	}
	m.begin(slot, to)
	m.keys(slot, to)
	m.end(slot, to)
}

// moveAll moves those of the slots that a node owns, and returns when all nodes know the owner of the last.
func (m *mover) moveAll(slots []int, from, to int) {
	var last *redistest.Move
	for _, slot := range slots {
		if m.owner[slot] == from {
			m.begin(slot, to)
			m.keys(slot, to)
			done := m.tell(slot, to)
			last = &done
		}
	}
	if last != nil {
		last.Await()
	}
}

func TestAFailoverOnRequestIsNoError(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	written := startWriters(t, srv, "a", "b", "c", "d")
	changes := changeAllServers(t, srv)
	// A blocking command waits anew at the new primary.
	waiting := map[*proxytest.Client]string{}
	for i, command := range []string{"BLPOP", "BRPOP", "BLPOP"} {
		p, key := srv.Dial(t), fmt.Sprint("{", proxytest.KeyOf(t, c, c.Nodes[i]), "}list")
		p.Send(command, key, "0")
		waiting[p] = key
	}
	proxytest.AwaitBlocked(t, len(waiting), c.Nodes...)
	var subscribers []*proxytest.Client
	p := srv.Dial(t)
	p.Script("SUBSCRIBE x", "*3")
	subscribers = append(subscribers, p)
	for i := range 3 {
		c.Failover(c.Nodes[3+i])
	}
	for _, p := range subscribers {
		p.Ends() // its server is a replica by now
	}
	for p, key := range waiting {
		srv.Dial(t).Script("RPUSH "+key+" x", ":1")
		p.Gets("*2")
	}
	changes()
	written(true)
}

// changeAllServers has all servers change data without a key until end. A server that has been demoted refuses that; its successor does not.
func changeAllServers(t testing.TB, srv *proxytest.Proxy) (end func()) {
	var changes proxytest.Meanwhile
	p := srv.Dial(t)
	changes.Go(func(n int) bool {
		script := "#!lua name=library\nredis.register_function('f', function() return 1 end)"
		begin := time.Now()
		got := p.Quiet("FUNCTION", "LOAD", "REPLACE", script)
		if got != "$7\r\nlibrary\r\n" {
			t.Errorf("FUNCTION LOAD %d: %q after %v", n, got, time.Since(begin))
			return false
		}
		return true
	})
	return changes.End
}

// A script may answer with any error. A redirection that it made up sends nothing anywhere, and the script runs once.
func scriptsDoNotRedirect(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	met := make(chan struct{})
	go func() {
		if nc, err := stranger.Accept(); err == nil {
			nc.Close()
			close(met)
		}
	}()
	p := srv.Dial(t)
	slot := c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", "scripted").(int64)
	runs := 0
	for _, words := range []string{
		fmt.Sprintf("MOVED %d %s", slot+1, stranger.Addr()), fmt.Sprintf("ASK %d %s", slot+1, stranger.Addr()), "MOVED x", "TRYAGAIN x", "CLUSTERDOWN x", "LOADING x",
	} {
		runs++
		if got := p.Quiet("EVAL", "redis.call('incr', KEYS[1]) return redis.error_reply(ARGV[1])", "1", "scripted", words); !strings.HasPrefix(got, "-"+words) {
			t.Errorf("%q came of %q", got, words)
		}
		if got, want := p.Quiet("GET", "scripted"), strconv.Itoa(runs); !strings.HasSuffix(got, "\r\n"+want+"\r\n") {
			t.Errorf("after %q the script has run %q times, want %s", words, got, want)
			runs, _ = strconv.Atoi(strings.Split(got, "\r\n")[1])
		}
	}
	for _, words := range []string{"LOADING x", "MASTERDOWN x", "CLUSTERDOWN x", "MOVED 0 " + c.Nodes[1].Addr()} {
		before := scriptsRun(t, c)
		if got := p.Quiet("EVAL", "return redis.error_reply(ARGV[1])", "0", words); got != "-"+words+"\r\n" {
			t.Errorf("%q came of %q", got, words)
		}
		if n := scriptsRun(t, c) - before; n != 1 {
			t.Errorf("a script that answers %q has run %d times", words, n)
		}
	}
	select {
	case <-met:
		t.Error("a stranger was called")
	default:
	}
}

// scriptsRun is the number of EVALs that the nodes have carried out.
func scriptsRun(t testing.TB, c *redistest.Cluster) (n int) {
	for _, node := range c.Nodes {
		n += node.Info(t, "commandstats", "cmdstat_eval:calls=")
	}
	return n
}

// A command waits for an element while its slot moves, long after it has moved before, or several times soon after that.
func aBlockingCommandFollowsItsSlotAgain(t *testing.T, c *redistest.Cluster) {
	const wait = time.Second
	srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = wait })
	followsItsSlot(t, c, srv, "again", 2, wait+wait/10)
	followsItsSlot(t, c, srv, "soon", 4, wait/2)
}

// followsItsSlot has a command wait while its slot moves some times, each time when the command has waited at its server for a while.
func followsItsSlot(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy, key string, moves int, while time.Duration) {
	p := srv.Dial(t)
	p.Send("BLPOP", key, "0")
	slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
	m := newMover(t, c)
	home := m.owner[slot]
	waits := func(node *redistest.Server) {
		since := time.Now()
		proxytest.WaitFor(t, "a blocked client", func() bool {
			if proxytest.Blocked(t, node) != 1 {
				since = time.Now()
			}
			return time.Since(since) > while
		})
	}
	waits(c.Nodes[home])
	for i := range moves {
		to := (home + i + 1) % c.Primaries
		m.moveAll([]int{slot}, m.owner[slot], to)
		waits(c.Nodes[to])
	}
	srv.Dial(t).Script("RPUSH "+key+" x", ":1")
	p.Gets("*2")
	m.move(slot, home)
}

func commandsAwaitTheMove(t *testing.T, c *redistest.Cluster, hasty *proxytest.Proxy) {
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	impatient, p := hasty.Dial(t), srv.Dial(t)
	one, two := "{await}1", "{await}2"
	slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", one).(int64))
	m := newMover(t, c)
	p.Quiet("MSET", one, "1", two, "2")
	to := (m.owner[slot] + 1) % 3
	m.begin(slot, to)
	migrate(t, m.to(slot, to), one)
	impatient.Script("MGET "+one+" "+two, "-TRYAGAIN ")
	if got := impatient.Quiet("GET", one) + impatient.Quiet("GET", two); got != "$1\r\n1\r\n$1\r\n2\r\n" {
		t.Errorf("%q", got)
	}
	p.Send("MGET", one, two)
	p.Send("SET", two, "3")
	p.Send("GET", two)
	m.keys(slot, to)
	m.end(slot, to)
	defer m.move(slot, (to+2)%3)
	p.Gets("*2\r\n$1\r\n1\r\n$1\r\n2\r\n", "+OK", "$1\r\n3\r\n")
}

func TestTheEndOfAPrimaryConcernsItsSlotsOnly(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped=%v", stopped), func(t *testing.T) {
			c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
			keys := []string{proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])}
			srv := proxytest.Start(t, c.Nodes[0], func(o *proxy.Options) { o.Upstream.Addr = "cluster://" + c.Addrs() })
			hit, other := srv.Dial(t), srv.Dial(t)
			hit.Quiet("SET", keys[0], "x")
			other.Quiet("MGET", keys[0], keys[1])
			c.Nodes[0].AwaitReplicas(t, 1)
			sub, key := srv.Dial(t), keys[0]
			sub.Quiet("SUBSCRIBE", "all") // at the server of slot 0, which goes
			sub.Quiet("SSUBSCRIBE", key)
			still := proxytest.Standstill(t, c.Nodes[1])
			begin := time.Now()
			if stopped {
				c.Nodes[0].Pause()
			} else {
				c.Nodes[0].Kill()
			}
			served := make(chan struct{})
			go func() { // each client is refused, cut off, or served
				defer close(served)
				for time.Since(begin) < 2*proxytest.Patience {
					hit.Send("GET", keys[0])
					if got, err := hit.Frame(); got == "$1\r\nx\r\n" {
						return
					} else if err != nil {
						hit = srv.Dial(t)
					}
				}
			}()
			longest, known := time.Duration(0), time.Duration(0)
			before := srv.Shared().Upstream.View().Epoch
			for done := false; !done; {
				at := time.Now()
				if known == 0 && srv.Shared().Upstream.View().Epoch != before {
					known = time.Since(begin)
				}
				other.Script("SET "+keys[1]+" y", "+OK")
				longest = max(longest, time.Since(at))
				select {
				case <-served:
					done = true
				default:
				}
			}
			t.Logf("new view after %v, served after %v; longest command of another shard: %v", known, time.Since(begin), longest)
			if late := time.Since(begin) - known; known > 0 && late > 2*time.Second+still() {
				t.Errorf("a client is served %v after the proxy has known the new primary, and the machine stood still for %v", late, still())
			}
			other.Script("GET "+keys[0], "$1\r\nx\r\n")
			sub.Ends()
			sub = srv.Dial(t)
			sub.Script("SUBSCRIBE all", "*3", "SSUBSCRIBE "+key, "*3")
			other.Script("PUBLISH all m", ":1", "SPUBLISH "+key+" m", ":1")
			sub.ExpectFrame("message", "all", "m")
			sub.ExpectFrame("smessage", key, "m")
		})
	}
}

// newClientsNeedNoSilentServer stops one server after the other: the one that the proxy asks about clients without credentials is among them.
func newClientsNeedNoSilentServer(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	srv.Dial(t).Quiet("PING") // the proxy has asked
	for i, node := range c.Nodes[:c.Primaries] {
		key := proxytest.KeyOf(t, c, c.Nodes[(i+1)%c.Primaries])
		still := proxytest.Standstill(t, c.Nodes[(i+1)%c.Primaries])
		node.Pause()
		begin := time.Now()
		cl := srv.Dial(t)
		cl.Script("SET "+key+" x", "+OK")
		took := time.Since(begin)
		node.Continue()
		if took > 2*time.Second+still() {
			t.Errorf("while server %d was silent, a new client of another one waited %v, and the machine stood still for %v", i, took, still())
		}
		c.AwaitReady()
	}
}

// refusals is the number of errors of a kind that a node has answered.
func refusals(t testing.TB, node *redistest.Server, kind string) int {
	t.Helper()
	return node.Info(t, "errorstats", "errorstat_"+kind+":count=")
}

// awaitRefusal returns when a node has answered another error of a kind than before.
func awaitRefusal(t testing.TB, node *redistest.Server, kind string, before int) {
	t.Helper()
	proxytest.WaitFor(t, "a refusal "+kind, func() bool { return refusals(t, node, kind) != before })
}

func commandsAwaitTheSlot(t *testing.T, c *redistest.Cluster) {
	node := c.Nodes[0]
	key := proxytest.KeyOf(t, c, node)
	slot := node.Do(t, "CLUSTER", "KEYSLOT", key)
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	p := srv.Dial(t)
	p.Quiet("SET", key, "1")
	before := refusals(t, node, "CLUSTERDOWN")
	node.Do(t, "CLUSTER", "DELSLOTS", slot)
	p.Raw(proxytest.Inline("INCR "+key, "GET "+key)) // in one write: a GET that is served before the INCR is sent again ends that
	awaitRefusal(t, node, "CLUSTERDOWN", before)
	node.Do(t, "CLUSTER", "ADDSLOTS", slot)
	p.Gets(":2", "$1\r\n2\r\n")
	c.AwaitReady()
}

// commandsOnPinsAwaitAnOwner: nobody serves a slot for a while. Commands on connections of their own ask any server meanwhile.
func commandsOnPinsAwaitAnOwner(t *testing.T, c *redistest.Cluster) {
	node := c.Nodes[0]
	key := proxytest.KeyOf(t, c, node)
	slot := int(node.Do(t, "CLUSTER", "KEYSLOT", key).(int64))
	coverage := func(demand string) {
		for _, one := range c.Nodes[:c.Primaries] {
			one.Do(t, "CONFIG", "SET", "cluster-require-full-coverage", demand)
		}
	}
	coverage("no") // a cluster that is down says nothing of its slots
	defer coverage("yes")
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	waiting, moving, muted := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	waiting.Quiet("DEL", key)
	for _, one := range c.Nodes[:c.Primaries] {
		one.Do(t, "CLUSTER", "DELSLOTS", slot)
	}
	proxytest.WaitFor(t, "a view without the slot's owner", func() bool {
		done := make(chan struct{})
		srv.Shared().Upstream.Refresh(topology.Any, func() { close(done) })
		<-done
		return srv.Shared().Upstream.View().Owner(slot) == nil
	})
	before := 0
	for _, one := range c.Nodes[:c.Primaries] {
		before += refusals(t, one, "CLUSTERDOWN")
	}
	waiting.Send("BLPOP", key, "0")
	moving.Script("MULTI", "+OK", "RPUSH "+key+" x", "+QUEUED")
	moving.Send("EXEC")
	muted.Raw(proxytest.Inline("CLIENT REPLY SKIP", "WATCH "+key, "PING"))
	proxytest.WaitFor(t, "refusals", func() bool {
		n := -before
		for _, one := range c.Nodes[:c.Primaries] {
			n += refusals(t, one, "CLUSTERDOWN")
		}
		return n >= 20
	})
	node.Do(t, "CLUSTER", "ADDSLOTS", slot)
	moving.Gets("*1\r\n:1")
	muted.Gets("+PONG")
	if got, err := waiting.Frame(); !strings.HasSuffix(got, "\r\nx\r\n") || err != nil {
		t.Errorf("BLPOP: %q, %v", got, err)
	}
	c.AwaitReady()
}

func commandsAwaitTheData(t *testing.T, c *redistest.Cluster) {
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	node := c.Nodes[0]
	key := proxytest.KeyOf(t, c, node)
	slot := fmt.Sprint(node.Do(t, "CLUSTER", "KEYSLOT", key))
	delay := func(microseconds string) { node.Do(t, "CONFIG", "SET", "key-load-delay", microseconds) }
	node.Do(t, "CONFIG", "SET", "loading-process-events-interval-bytes", "1024")
	defer delay("0")
	node.Do(t, "EVAL", "for i = 1, 2000 do redis.call('SET', '{'..KEYS[1]..'}'..i, string.rep('x', 1024)) end", "1", key) // it answers behind each of them
	p := srv.Dial(t)
	p.Quiet("SET", key, slot)
	before := refusals(t, node, "LOADING")
	delay("10000") // it takes 20 s, unless the test ends it
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		node.Do(t, "DEBUG", "RELOAD")
	}()
	proxytest.WaitFor(t, "the node to load", func() bool {
		info, _ := node.Do(t, "INFO", "persistence").(string)
		return strings.Contains(info, "loading:1")
	})
	p.Send("GET", key)
	awaitRefusal(t, node, "LOADING", before)
	delay("0")
	p.Gets(fmt.Sprintf("$%d\r\n%s\r\n", len(slot), slot))
	<-loaded
}

// serversAreUsedAtOnce sends writes to two servers, of which the first does not answer: the other one carries its command out.
func serversAreUsedAtOnce(t *testing.T, c *redistest.Cluster) {
	srv := proxytest.Start(t, c.Nodes[0], func(o *proxy.Options) { o.Upstream.Addr = "cluster://" + c.Addrs() })
	p := srv.Dial(t)
	silent, other := proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])
	p.Quiet("MSET", silent, "0", other, "0")
	c.Nodes[0].Pause()
	for range 2 {
		p.Send("INCR", silent)
		p.Send("INCR", other)
	}
	proxytest.WaitFor(t, "the other server to carry out both", func() bool { return c.Nodes[1].Do(t, "GET", other) == "2" })
	c.Nodes[0].Continue()
	p.Gets(":1", ":1", ":2", ":2")
	p.Script("MGET "+silent+" "+other, "*2\r\n$1\r\n2\r\n$1\r\n2\r\n")
	c.AwaitReady()
}

// An UNLOCK waits for the write before it, at a server that does not answer.
func anUnlockIsABarrier(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	silent, other := proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])
	lock := "{" + other + "}lock"
	p, next, reader := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	p.Script("LOCK "+lock, ":", "SET "+other+" 0", "+OK")
	next.Send("LOCK", lock)
	c.Nodes[0].Pause()
	p.Raw(proxytest.Inline("SET "+silent+" 1", "SET "+other+" 1", "UNLOCK "+lock))
	proxytest.WaitFor(t, "the write to the other server", func() bool { return reader.Quiet("GET", other) == "$1\r\n1\r\n" })
	var awake atomic.Bool
	granted := make(chan string, 1)
	go func() {
		got, err := next.Frame()
		granted <- fmt.Sprint(got, err, awake.Load())
	}()
	for range 20 { // the UNLOCK would take effect meanwhile
		reader.Quiet("GET", other)
	}
	awake.Store(true)
	c.Nodes[0].Continue()
	if got := <-granted; !strings.HasSuffix(got, "\r\n<nil> true") {
		t.Errorf("the lock was free before the write: %q", got)
	}
	c.AwaitReady()
}

func addressesAreOfTheirKind(t *testing.T, alone *redistest.Server, c *redistest.Cluster) {
	for addr, want := range map[string]string{
		"cluster://" + c.Addrs():    "",
		alone.Addr():                "",
		c.Nodes[0].Addr():           "it is a node of a cluster",
		"cluster://" + alone.Addr(): "it is no node of a cluster",
	} {
		if err := proxytest.TryOut(t, upstream.Options{Addr: addr}, proxytest.Patience); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", addr, err, want)
		}
	}
}

// The connection of a client that waits is at the server of its key, where the proxy ends the wait.
func clientsAreEndedAtTheirServers(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	admin := proxytest.Named(t, srv.Addr(), "admin")
	for _, node := range c.Nodes {
		key := "{" + proxytest.KeyOf(t, c, node) + "}waits"
		waiter := proxytest.Named(t, srv.Addr(), "waiter")
		id := waiter.ID()
		blocks := func() {
			t.Helper()
			waiter.Send("BLPOP", key, "0")
			proxytest.AwaitBlocked(t, 1, node)
			if got := admin.Quiet("CLIENT", "LIST", "ID", id); !strings.Contains(got, " flags=b ") {
				t.Errorf("a waiter is listed as %s", got)
			}
		}
		blocks()
		admin.Script("CLIENT UNBLOCK "+id+" ERROR", ":1")
		waiter.Gets("-UNBLOCKED client unblocked via CLIENT UNBLOCK")
		blocks()
		if got := admin.Quiet("CLIENT", "KILL", "ID", id) + admin.Quiet("RPUSH", key, "v") + admin.Quiet("LLEN", key); got != ":1\r\n:1\r\n:1\r\n" {
			t.Errorf("KILL, RPUSH, LLEN: %q", got)
		}
		waiter.Ends()
	}
}
