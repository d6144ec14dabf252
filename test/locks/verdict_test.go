package locks

import (
	"testing"
	"time"
)

// The checks themselves are tested with histories made by hand. Times are milliseconds.

// said builds a command with its outcome.
func said(worker, verb string, call, ret int64, out outcome, fence int64) op {
	const ms = int64(time.Millisecond)
	o := op{Worker: worker, Verb: verb, Key: "a", Owner: worker, Call: call * ms, Return: ret * ms, Out: out, Fence: fence}
	if o.acquire() || verb == "EXTENDLOCK" {
		o.Lease = 100 * ms
	}
	return o
}

func graced(o op) op {
	o.Graced = true
	return o
}

// lasting sets the length of the lease.
func lasting(ms int64, o op) op {
	o.Lease = ms * int64(time.Millisecond)
	return o
}

// lost is a command that is told of a loss of its session, for an explicit owner.
func lost(o op) op {
	o.Named, o.Text = true, "LOSTLEASE the lock was lost before this command: its lease ended, or it was taken away"
	return o
}

// waiting is a command with a WAIT.
func waiting(o op) op {
	o.Wait = o.Return - o.Call
	return o
}

// sharing is a command about a shared hold.
func sharing(o op) op {
	o.Kind = shared
	return o
}

// permit is a command about one of n permits. One that is refused has no fence.
func permit(n int, o op) op {
	o.Kind, o.Limit = limited, n
	return o
}

var verdicts = []struct {
	name    string
	ops     []op
	illegal bool // the model has no order for it
}{
	{"one after the other", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0),
		said("b", "LOCK", 0, 4, acquired, 6), said("b", "UNLOCK", 5, 6, released, 0),
	}, false},
	{"granted twice", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 50, 51, released, 0),
		said("b", "LOCK", 2, 3, acquired, 6), said("b", "UNLOCK", 40, 41, released, 0),
	}, true},
	{"granted before the lease ended", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("b", "LOCK", 90, 95, acquired, 6),
	}, true},
	{"granted after the lease ended", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("b", "LOCK", 90, 101, acquired, 6),
	}, false},
	{"granted though a witness saw the lease renewed", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCKINFO", 150, 151, mine, 5),
		said("b", "LOCK", 110, 120, acquired, 6),
	}, true},
	{"granted while a release was on its way", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 9, released, 0), said("b", "LOCK", 3, 4, acquired, 6),
	}, false},
	{"granted after a release without a reply", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 0, unknown, 0), said("b", "LOCK", 3, 4, acquired, 6),
	}, false},
	{"granted early because of GRACE", []op{
		graced(said("a", "LOCK", 0, 1, acquired, 5)), said("b", "LOCK", 3, 4, acquired, 6),
	}, false},
	{"the fence goes back", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0), said("b", "LOCK", 4, 5, acquired, 4),
	}, true},
	{"the fence is given twice", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0), said("b", "LOCK", 4, 5, acquired, 5),
	}, true},
	{"re-entry", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCK", 2, 3, acquired, 5),
		said("a", "UNLOCK", 4, 5, still, 0), said("a", "UNLOCK", 6, 7, released, 0),
	}, false},
	{"re-entry with a new fence", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCK", 2, 3, acquired, 6),
	}, true},
	{"released with one hold left", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCK", 2, 3, acquired, 5), said("a", "UNLOCK", 4, 5, released, 0),
	}, true},
	{"one hold more than was asked for", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 4, 5, still, 0),
	}, true},
	{"lost within the lease", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 50, 51, notHeld, 0),
	}, true},
	{"lost after the lease", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 120, 121, notHeld, 0),
	}, false},
	{"released by a stranger", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("b", "UNLOCK", 4, 5, released, 0),
	}, true},
	{"lost by one session, taken again by another of its owner", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "LOCK", 102, 103, acquired, 6),
		lost(said("a", "UNLOCK", 104, 105, notHeld, 0)), said("a", "UNLOCK", 106, 107, released, 0),
	}, false},
	{"granted after a shorter lease, whose answer came too late, ended", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "EXTENDLOCK", 10, 1700, notHeld, 0)),
		said("b", "LOCK", 60, 320, acquired, 6),
	}, false},
	{"granted within a shorter lease", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "EXTENDLOCK", 10, 1700, notHeld, 0)),
		said("b", "LOCK", 60, 300, acquired, 6),
	}, true},
	{"granted after a shorter lease that was refused at once", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "EXTENDLOCK", 10, 11, notHeld, 0)),
		said("b", "LOCK", 60, 320, acquired, 6),
	}, true},
	{"granted after a re-entry, whose answer came too late, ended", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "TRYLOCK", 10, 400, busy, 0)),
		lasting(1000, said("b", "LOCK", 60, 320, acquired, 6)),
	}, false},
	{"granted within the lease of a re-entry", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "TRYLOCK", 10, 400, busy, 0)),
		lasting(1000, said("b", "LOCK", 60, 300, acquired, 6)),
	}, true},
	{"granted after a re-entry that was refused at once", []op{
		lasting(1000, said("a", "LOCK", 0, 1, acquired, 5)), lasting(300, said("a", "TRYLOCK", 10, 11, busy, 0)),
		lasting(1000, said("b", "LOCK", 60, 320, acquired, 6)),
	}, true},
	{"busy while free", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0), said("b", "TRYLOCK", 4, 5, busy, 0),
	}, true},
	{"busy while an acquire has no reply", []op{
		said("a", "LOCK", 0, 0, unknown, 0), said("b", "TRYLOCK", 4, 5, busy, 0),
	}, false},
	{"busy while reserved for a waiter that gives up", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 4, 5, released, 0), waiting(said("b", "TRYLOCK", 2, 9, busy, 0)),
		said("c", "TRYLOCK", 7, 8, busy, 0),
	}, false},
	{"busy after the waiter gave up", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 4, 5, released, 0), waiting(said("b", "TRYLOCK", 2, 6, busy, 0)),
		said("c", "TRYLOCK", 7, 8, busy, 0),
	}, true},
	{"busy long after the release, although a waiter gives up", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 4, 5, released, 0), lasting(5000, waiting(said("b", "TRYLOCK", 2, 900, busy, 0))),
		said("c", "TRYLOCK", 300, 301, busy, 0),
	}, true},
	{"busy while reserved for a waiter that has come after the release", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 4, 5, released, 0), waiting(said("b", "TRYLOCK", 6, 9, busy, 0)),
		said("c", "TRYLOCK", 7, 8, busy, 0),
	}, true},
	{"two waiters of a free lock", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 4, 5, released, 0),
		lasting(5000, waiting(said("b", "LOCK", 6, 900, busy, 0))), lasting(5000, waiting(said("c", "LOCK", 7, 901, busy, 0))),
	}, true},
	{"free for all the time that the only waiter waits", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("a", "UNLOCK", 2, 3, released, 0), waiting(said("b", "TRYLOCK", 4, 9, busy, 0)),
	}, true},
	{"shared beside shared", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), sharing(said("b", "LOCK", 2, 3, acquired, 6)), sharing(said("c", "LOCK", 0, 4, acquired, 7)),
		sharing(said("a", "UNLOCK", 50, 51, released, 0)), sharing(said("b", "UNLOCK", 60, 61, released, 0)),
	}, false},
	{"exclusive beside shared", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), said("b", "LOCK", 2, 3, acquired, 6), said("b", "UNLOCK", 40, 41, released, 0),
	}, true},
	{"shared beside exclusive", []op{
		said("a", "LOCK", 0, 1, acquired, 5), sharing(said("b", "LOCK", 2, 3, acquired, 6)), sharing(said("b", "UNLOCK", 40, 41, released, 0)),
	}, true},
	{"shared holders have one fence", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), sharing(said("b", "LOCK", 2, 3, acquired, 5)),
	}, true},
	{"a shared holder is gone when another leaves", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), sharing(said("b", "LOCK", 2, 3, acquired, 6)), sharing(said("a", "UNLOCK", 4, 5, released, 0)),
		sharing(said("b", "UNLOCK", 6, 7, notHeld, 0)),
	}, true},
	{"exclusive when the only other sharer's lease has ended", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), sharing(said("b", "LOCK", 2, 3, acquired, 6)), sharing(said("b", "UNLOCK", 4, 5, released, 0)),
		said("c", "LOCK", 20, 101, acquired, 7),
	}, false},
	{"exclusive beside the owner's own share", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), said("a", "LOCK", 2, 3, acquired, 6),
	}, true},
	{"exclusive behind the owner's own share", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), sharing(said("a", "UNLOCK", 2, 3, released, 0)), said("a", "LOCK", 4, 5, acquired, 6),
	}, false},
	{"sharing is refused though no waiter is there", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), sharing(said("b", "TRYLOCK", 2, 3, busy, 0)),
	}, true},
	{"sharing is refused while a waiter is there", []op{
		sharing(said("a", "LOCK", 0, 1, acquired, 5)), sharing(said("b", "TRYLOCK", 6, 7, busy, 0)), waiting(said("c", "LOCK", 2, 9, busy, 0)),
	}, false},
	{"as many permits as there may be", []op{
		permit(2, said("a", "LOCK", 0, 1, acquired, 5)), permit(2, said("a", "LOCK", 2, 3, acquired, 6)), permit(2, said("b", "TRYLOCK", 4, 5, busy, 0)),
		permit(3, said("b", "LOCK", 6, 7, acquired, 7)), permit(2, said("a", "UNLOCK", 8, 9, released, 5)), permit(2, said("a", "UNLOCK", 10, 11, released, 6)),
	}, false},
	{"one permit too many", []op{
		permit(2, said("a", "LOCK", 0, 1, acquired, 5)), permit(2, said("a", "LOCK", 2, 3, acquired, 6)), permit(2, said("b", "LOCK", 4, 5, acquired, 7)),
	}, true},
	{"more permits than an earlier call allows", []op{
		permit(1, said("a", "LOCK", 0, 3, acquired, 5)), permit(2, said("b", "LOCK", 1, 2, acquired, 6)),
	}, false},
	{"a permit when one of two leases has ended", []op{
		permit(2, said("a", "LOCK", 0, 1, acquired, 5)), permit(2, lasting(500, said("a", "LOCK", 2, 3, acquired, 6))), permit(2, said("b", "LOCK", 90, 101, acquired, 7)),
	}, false},
	{"a permit is refused though one is left", []op{
		permit(2, said("a", "LOCK", 0, 1, acquired, 5)), permit(2, said("b", "TRYLOCK", 4, 5, busy, 0)),
	}, true},
	{"a permit is released twice", []op{
		permit(2, said("a", "LOCK", 0, 1, acquired, 5)), permit(2, said("a", "UNLOCK", 2, 3, released, 5)), permit(2, said("a", "UNLOCK", 4, 5, released, 5)),
	}, true},
	{"exclusive beside a permit of its owner", []op{
		permit(2, said("a", "LOCK", 0, 1, acquired, 5)), said("a", "LOCK", 2, 3, acquired, 6),
	}, true},
	{"busy while held", []op{
		said("a", "LOCK", 0, 1, acquired, 5), said("b", "TRYLOCK", 4, 5, busy, 0),
	}, false},
}

func TestChecksTellRightFromWrong(t *testing.T) {
	for _, v := range verdicts {
		t.Run(v.name, func(t *testing.T) { judge(t, v.ops, v.illegal) })
	}
}

// judge compares what the checks say of commands with what they should.
func judge(t *testing.T, ops []op, illegal bool) {
	t.Helper()
	histories := make(map[string][]op)
	for _, o := range ops {
		o.N = len(histories[o.Worker])
		histories[o.Worker] = append(histories[o.Worker], o)
	}
	undisturbed := func(op) bool { return false }
	bad := linearizable("a", histories, 100*time.Millisecond, undisturbed, t.TempDir()+"/a.html")
	if (bad != "") != illegal {
		t.Errorf("model: %q, want an objection: %v", bad, illegal)
	}
}
