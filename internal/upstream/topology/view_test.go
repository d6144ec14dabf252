package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

const info = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_current_epoch:6\r\ncluster_my_epoch:2\r\n"

// view makes a view of the texts of a node's answers to CLUSTER INFO, CLUSTER NODES and CLUSTER SLOTS.
func view(t *testing.T, info, nodes, answer string) *View {
	t.Helper()
	told, err := ReadNodes(nodes)
	if err != nil {
		t.Fatal(err)
	}
	var book Book
	if now := time.Now(); !book.Fill(told, now) {
		book.Learn(told, listed(t, answer), now)
	}
	return told.View(info)
}

// listed reads the text of an answer to CLUSTER SLOTS.
func listed(t *testing.T, answer string) map[string]string {
	t.Helper()
	a, _, err := resp.Decode([]byte(answer))
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := ReadAddresses(a, "10.0.0.9:7009")
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

const (
	nodeB = "*4\r\n$8\r\n10.0.0.1\r\n:7001\r\n$1\r\nb\r\n*0\r\n"
	nodeA = "*4\r\n$0\r\n\r\n:7002\r\n$1\r\na\r\n*0\r\n"
	nodeR = "*3\r\n$3\r\n::1\r\n:7003\r\n$1\r\nr\r\n"
	lost  = "*3\r\n$1\r\n?\r\n:7004\r\n$1\r\nx\r\n"
)

func TestAViewHasTheNodeOfEachSlot(t *testing.T) {
	const nodes = "b h:1@1 master - 0 0 2 connected 0-99 16383\n" +
		"a h:2@1 myself,master - 0 0 3 connected 100-199 202-16382 [5->-b] [300-<-b]\n" +
		"x h:4@1 master - 0 0 4 connected 200-201\n" +
		"r h:3@1,host slave b 0 0 2 connected\n" +
		"f h:5@1 slave,fail a 1 1 2 disconnected\n" +
		"n :0@0 master,noaddr - 0 0 5 connected\n\n"
	v := view(t, info, nodes, "*3\r\n*4\r\n:0\r\n:99\r\n"+nodeB+nodeR+"*3\r\n:100\r\n:199\r\n"+nodeA+"*3\r\n:200\r\n:201\r\n"+lost)
	if !v.OK || v.Epoch != 6 {
		t.Errorf("ok %v, epoch %d", v.OK, v.Epoch)
	}
	for slot, want := range map[int]string{0: "b", 5: "b", 99: "b", 100: "a", 16382: "a", 16383: "b"} {
		if got := v.Owner(slot); got == nil || got.ID != want {
			t.Errorf("slot %d: %v, want %s", slot, got, want)
		}
	}
	if n := v.Owner(200); n != nil {
		t.Errorf("a slot whose node has no address is served by %v", n)
	}
	if v.Covered() {
		t.Error("all slots are said to be served")
	}
	// a has the host that was asked
	if want := []ClusterNode{{"a", "10.0.0.9:7002"}, {"b", "10.0.0.1:7001"}, {"r", "[::1]:7003"}}; !slices.Equal(v.Servers(), want) {
		t.Errorf("servers %v, want %v", v.Servers(), want)
	}
	if n := v.At("[::1]:7003"); n == nil || n.ID != "r" {
		t.Errorf("at the replica's address: %v", n)
	}
	for address, want := range map[string]string{":7003": "r", ":7009": "", "[::1]:7003": "r"} {
		n := v.Named(Refusal{Address: address}, "r")
		if n == nil && want != "" || n != nil && n.ID != want {
			t.Errorf("%q of a server at ::1 names %v, want %q", address, n, want)
		}
	}
	if n := v.Named(Refusal{Address: ":7003"}, "a"); n != nil {
		t.Errorf("the port of another host names %v", n)
	}
	if v.At("evil:6379") != nil || v.Primary("r") != nil {
		t.Error("a server that is not there, or no primary, is found")
	}
}

func TestReplicasThatHaveFailedAreCounted(t *testing.T) {
	const nodes = "a 10.0.0.1:7001@17001 myself,master - 0 0 2 connected 0-99 [5->-b]\n" +
		"r1 10.0.0.2:7001@17001,host slave a 0 1 2 connected\n" +
		"r2 10.0.0.3:7001@17001 slave,fail a 1 1 2 disconnected\n" +
		"r3 :0@0 slave,fail,noaddr a 1 1 2 disconnected\n" +
		"o 10.0.0.4:7001@17001 master,fail - 1 1 1 disconnected\n" +
		"e 10.0.0.6:7001@17001 master - 0 1 1 connected\n" +
		"h 10.0.0.5:7001@17001 handshake - 1 1 1 disconnected\n\nvars currentEpoch 6\n"
	const answer = "*1\r\n*3\r\n:0\r\n:99\r\n" + nodeA
	known := view(t, info, nodes, answer)
	if got := known.Replicas(7); got != 3 {
		t.Errorf("%d replicas, want 3", got)
	}
	if known.Replicas(100) != 0 {
		t.Error("replicas of a slot without a server")
	}
	if fewer := view(t, info, strings.Replace(nodes, "r3 :0@0 slave,fail,noaddr a", "r3 :0@0 slave,fail,noaddr -", 1), answer); known.Same(fewer) {
		t.Error("views with other numbers of replicas are taken for the same")
	}
	for id, want := range map[string]bool{"a": true, "r1": true, "r2": false, "r3": false, "o": false, "h": false, "stranger": false} {
		if known.Lives(id) != want {
			t.Errorf("%s lives: %v, want %v", id, known.Lives(id), want)
		}
	}
	if down := view(t, info, strings.Replace(nodes, "e 10.0.0.6:7001@17001 master", "e 10.0.0.6:7001@17001 master,fail", 1), answer); known.Same(down) {
		t.Error("views with other servers that are down are taken for the same")
	}
}

// CLUSTER SLOTS is expensive when slots have been moved. So it is asked for news only.
func TestAddressesAreAskedForWhenAServerIsNew(t *testing.T) {
	const line = " - 0 0 2 connected 0-99"
	slots := listed(t, "*1\r\n*4\r\n:0\r\n:99\r\n"+nodeA+nodeR)
	var book Book
	now := time.Now()
	for _, c := range []struct {
		title, nodes string
		after        time.Duration
		known        bool
	}{
		{"nothing is known", "a h:1@1 master" + line, 0, false},
		{"the same again", "a h:1@1 myself,master" + line, 0, true},
		{"another range", "a h:1@1 master" + line + " 200", 0, true},
		{"another address", "a h:2@1 master" + line, 0, false},
		{"another name", "a h:2@1,name master" + line, 0, false},
		{"a server without slots", "a h:1@1 master" + line + "\nz h:9@1 master - 0 0 2 connected", 0, true},
		{"a replica", "a h:1@1 master" + line + "\nr h:3@1 slave a 0 0 2 connected", 0, false},
		{"the replica has failed", "a h:1@1 master" + line + "\nr h:4@1 slave,fail a 0 0 2 connected", 0, true},
		{"the replica is a primary", "a h:1@1 slave r 0 0 2 connected\nr h:3@1 master" + line, 0, true},
		{"a replica that CLUSTER SLOTS does not show", "a h:1@1 master" + line + "\nn h:5@1 slave a 0 0 2 connected", 0, false},
		{"the same again", "a h:1@1 master" + line + "\nn h:5@1 slave a 0 0 2 connected", bookAge, true},
		{"long after", "a h:1@1 master" + line, time.Second, false},
		{"the same again", "a h:1@1 master" + line, 0, true},
		{"a primary that CLUSTER SLOTS does not show", "n h:5@1 master" + line, 0, false},
		{"the same again", "n h:5@1 master" + line, 0, false},
	} {
		told, err := ReadNodes(c.nodes)
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(c.after)
		got := book.Fill(told, now)
		if got != c.known {
			t.Errorf("%s: known %v, want %v", c.title, got, c.known)
		}
		if !got {
			book.Learn(told, slots, now)
		}
	}
	if len(book.known) != 1 {
		t.Errorf("servers that are not there any more are kept: %v", book.known)
	}
}

func TestAServerWithoutSlotsForAMomentKeepsItsAddress(t *testing.T) {
	const nodes = "a h:1@1 master - 0 0 2 connected 0-99"
	var book Book
	for _, slots := range []string{"*1\r\n*3\r\n:0\r\n:99\r\n" + nodeA, "*0\r\n"} {
		told, err := ReadNodes(nodes)
		if err != nil {
			t.Fatal(err)
		}
		book.Learn(told, listed(t, slots), time.Now())
		if got := told.View(info).Owner(0); got == nil || got.Address != "10.0.0.9:7002" {
			t.Errorf("with %q: %v", slots, got)
		}
	}
}

// A node of Valkey 8.1 says this for a moment while the server b takes over from a.
func TestSlotsOfADemotedServerAreItsSuccessors(t *testing.T) {
	const (
		before = "a h:1@1 master - 0 0 3 connected 0-99\nb h:2@2 slave a 0 0 3 connected\nc h:3@3 myself,master - 0 0 2 connected 100-16383\n"
		later  = "a h:1@1 slave b 0 0 9 connected 0-99\nb h:2@2 master - 0 0 9 connected\nc h:3@3 myself,master - 0 0 2 connected 100-16383\n"
		other  = "*3\r\n:100\r\n:16383\r\n*3\r\n$1\r\nh\r\n:3\r\n$1\r\nc\r\n"
	)
	server := func(id string, port int) string { return fmt.Sprintf("*3\r\n$1\r\nh\r\n:%d\r\n$1\r\n%s\r\n", port, id) }
	var book Book
	var views []*View
	for _, step := range []struct{ nodes, slots string }{
		{before, "*2\r\n*4\r\n:0\r\n:99\r\n" + server("a", 1) + server("b", 2) + other},
		{later, "*2\r\n*3\r\n:0\r\n:99\r\n" + server("a", 1) + other}, // CLUSTER SLOTS does not show b then
	} {
		told, err := ReadNodes(step.nodes)
		if err != nil {
			t.Fatal(err)
		}
		if now := time.Now(); !book.Fill(told, now) {
			book.Learn(told, listed(t, step.slots), now)
		}
		views = append(views, told.View(info))
	}
	if got := views[0].Owner(7); got == nil || got.ID != "a" {
		t.Errorf("before: %v, want a", got)
	}
	now := merge(views[0], views[1])
	if got := now.Owner(7); got == nil || *got != (ClusterNode{"b", "h:2"}) || !now.Covered() {
		t.Errorf("the slot is at %v, want b at h:2; all slots are served: %v", got, now.Covered())
	}
	if now.Primary("a") != nil || now.Server("a") == nil {
		t.Error("a is not taken for a replica")
	}
	if got := merge(now, views[0]).Owner(7); got == nil || got.ID != "b" {
		t.Errorf("an older answer moves the slot to %v", got)
	}
}

func TestAnswersThatAreNoneMakeNoView(t *testing.T) {
	for _, answer := range []string{
		"-ERR This instance has cluster support disabled\r\n", "+OK\r\n", "*1\r\n:1\r\n", "*-1\r\n",
	} {
		a, _, err := resp.Decode([]byte(answer))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadAddresses(a, "h:1"); err == nil {
			t.Errorf("%q makes a view", answer)
		}
	}
	for _, answer := range []string{"", "\n", "OK", "a h:1@1 master - 0 0 2 connected 5-1\n", "a h:1@1 master - 0 0 2 connected 16384\n", "a h:1@1 master - 0 0 2 connected x\n"} {
		if _, err := ReadNodes(answer); err == nil {
			t.Errorf("%q is read", answer)
		}
	}
}

func TestAnOlderViewReplacesNone(t *testing.T) {
	view := func(epoch uint64, ok bool) *View { return &View{Epoch: epoch, OK: ok} }
	for _, c := range []struct {
		v, other *View
		want     bool
	}{
		{view(7, false), view(6, true), true},
		{view(6, true), view(7, false), false},
		{view(6, true), view(6, true), true},
		{view(6, false), view(6, true), false},
		{view(6, true), view(6, false), true},
		{view(0, false), &View{}, true},
	} {
		if got := merge(c.other, c.v) == c.v; got != c.want {
			t.Errorf("%d %v replaces %d %v: %v", c.v.Epoch, c.v.OK, c.other.Epoch, c.other.OK, got)
		}
	}
}

func TestNoSlotReturnsToAnOwnerOfBefore(t *testing.T) {
	for name, c := range map[string]struct {
		present, source, answer string // the owners of the first slots with their epochs, and who says so
		epoch                   uint64
		want                    string
	}{
		"a node does not know of a move in the same epoch": {"b7 c2", "", "a3 c2", 7, "bc"},
		"it does not even know of the move in a new epoch": {"b7 c2", "", "a3 c2", 8, "bc"},
		"it knows of one move and not of another":          {"b7 c2 a3", "", "a3 d5 a3", 7, "bda"},
		"a slot has moved":                             {"a3 c2", "", "b7 c2", 7, "bc"},
		"it has moved there and back":                  {"b7", "", "a8", 8, "a"},
		"a node has given up its slot in no new epoch": {"b7 c2", "b", "a3 c2", 7, "ac"},
		"the epochs are not known":                     {"b0", "", "a0", 7, "a"},
	} {
		answer := says("", c.epoch, "", c.answer).View
		answer.source = c.source
		got := merge(says("", 7, "", c.present).View, answer)
		if owners(got, len(c.want)) != c.want || got.Epoch != c.epoch {
			t.Errorf("%s: epoch %d, slots at %s, want %s", name, got.Epoch, owners(got, len(c.want)), c.want)
		}
		for i, n := range got.Nodes() {
			if !strings.Contains(c.want, n.ID) || n.Address != "h:"+n.ID || i > 0 && got.Nodes()[i-1].ID >= n.ID {
				t.Errorf("%s: primaries %v", name, got.Nodes())
			}
		}
	}
}

func TestOnlyRedissOwnWordsAreARefusal(t *testing.T) {
	for reply, want := range map[string]Refusal{
		"-MOVED 3999 127.0.0.1:6381\r\n":                                            {Moved, 3999, "127.0.0.1:6381"},
		"-ASK 16383 ::1:6381\r\n":                                                   {Asking, 16383, "[::1]:6381"},
		"-MOVED 3999 :6381\r\n":                                                     {Moved, 3999, ":6381"},
		"-TRYAGAIN Multiple keys request during rehashing of slot\r\n":              {Reason: TryLate},
		"-CLUSTERDOWN Hash slot not served\r\n":                                     {Reason: TryLate},
		"-CLUSTERDOWN The cluster is down and only accepts read commands\r\n":       {Reason: TryLate},
		"-LOADING Redis is loading the dataset in memory\r\n":                       {Reason: TryLate},
		"-LOADING Valkey is loading the dataset in memory\r\n":                      {Reason: TryLate},
		"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set ": {Reason: TryLate},
		"-READONLY You can't write against a read only replica.\r\n":                {Reason: TryLate},
		"-READONLY You can't write against a read only replica. script: 1, on ...":  {},
		"-MOVED 16384 127.0.0.1:6381\r\n":                                           {},
		"-MOVED -1 127.0.0.1:6381\r\n":                                              {},
		"-MOVED 1 127.0.0.1\r\n":                                                    {},
		"-MOVED 1 127.0.0.1:0\r\n":                                                  {},
		"-MOVED 1 127.0.0.1:65536\r\n":                                              {},
		"-MOVED 1 a:1 b\r\n":                                                        {},
		"-MOVED 1\r\n":                                                              {},
		"-MOVED\r\n":                                                                {},
		"-TRYAGAIN later\r\n":                                                       {},
		"-CLUSTERDOWN no\r\n":                                                       {},
		"-LOADING\r\n":                                                              {},
		"-ERR MOVED 1 a:1\r\n":                                                      {},
		"+MOVED 1 a:1\r\n":                                                          {},
	} {
		if got := ReadRefusal([]byte(reply)); got != want {
			t.Errorf("%q: %+v, want %+v", reply, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("-MOVED 1 a:1\r\n"))
	f.Fuzz(func(_ *testing.T, b []byte) { ReadRefusal(b) })
}

// The first slots of a new server are on their way there before it has any.
func TestAServerWithoutSlotsIsKnownByItsAddress(t *testing.T) {
	const answer = "*1\r\n*3\r\n:0\r\n:16383\r\n" + nodeB
	nodes := "b 10.0.0.1:7001@17001 myself,master - 0 0 2 connected 0-16383\n" +
		"c 10.0.0.3:7001@17001,name master - 0 0 0 connected\nd ::1:7001@17001 master - 0 0 0 connected\n" +
		"e :0@0 master,noaddr - 0 0 0 disconnected\nf 10.0.0.6:7001@17001 master,fail - 0 0 0 disconnected\ng 10.0.0.7:7001@17001 handshake - 0 0 0 connected\n"
	v := view(t, info, nodes, answer)
	for address, want := range map[string]string{"10.0.0.3:7001": "c", "[::1]:7001": "d"} {
		if n := v.At(address); n == nil || n.ID != want || v.Server(want) == nil || v.Primary(want) != nil {
			t.Errorf("%s: %v, want %s, which serves no slots", address, n, want)
		}
	}
	for _, address := range []string{":0", "10.0.0.6:7001", "10.0.0.7:7001"} {
		if n := v.At(address); n != nil {
			t.Errorf("%s: %v", address, n)
		}
	}
	if len(v.Nodes()) != 1 || len(v.Servers()) != 1 {
		t.Errorf("primaries with slots: %v; servers to ask: %v", v.Nodes(), v.Servers())
	}
	if without := view(t, info, nodes[:strings.Index(nodes, "c ")], answer); v.Same(without) {
		t.Error("a new server is no change")
	}
}
