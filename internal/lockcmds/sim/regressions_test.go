package sim

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// overOlderGrant is a plan in which a new primary has an older grant than the client holds, when the client sends the
// last command.
func overOlderGrant(last string) *plan {
	return &plan{
		proxies: 2, clients: 4, shape: sentinels, replicas: 2,
		actions: []action{
			{at: 12 * ms, kind: "send", who: 3, line: "TRYLOCK a"},
			{at: 14 * ms, kind: "promote", line: "a", d: 60 * ms},
			{at: 15 * ms, kind: "send", who: 3, line: "UNLOCK a"},
			{at: 18 * ms, kind: "send", who: 3, line: "FAIRLOCK a"},
			{at: 850 * ms, kind: "send", who: 3, line: last},
		},
	}
}

// regressions are the smallest plans of histories that broke a rule once, because of the lock engine or its scripts.
var regressions = map[string]*plan{
	"a lease that ran out while a free lock was kept let the next fair waiter sleep": {
		proxies: 3, clients: 6, calm: true,
		actions: []action{
			{at: 7 * ms, kind: "send", who: 1, line: "FAIRLOCK f MAXHOLD 330"},
			{at: 10 * ms, kind: "send", who: 3, line: "FAIRLOCK f WAIT 9879 PX 85"},
			{at: 80 * ms, kind: "send", who: 1, line: "EXTENDLOCK f PX 2884"},
			{at: 377 * ms, kind: "send", who: 4, line: "FAIRLOCK f"},
			{at: 548 * ms, kind: "send", who: 0, line: "FAIRLOCK f WAIT 4097"},
		},
	},
	"the lease of a release in doubt was counted from its copy, but the first copy had set it": {
		proxies: 1, clients: 2,
		actions: []action{
			{at: 1 * ms, kind: "send", who: 1, line: "TRYLOCK a"},
			{at: 2 * ms, kind: "send", who: 1, line: "LOCK a"},
			{at: 20 * ms, kind: "cut own", d: 1500 * ms, n: 1},
			{at: 30 * ms, kind: "send", who: 1, line: "UNLOCK a"},
			{at: 30*ms + 100*time.Microsecond, kind: "cut lane", d: 400 * ms, d2: 10 * ms, n: 1},
		},
	},
	"the place of a named owner stayed in the queue when another session of it was granted the lock": {
		proxies: 2, clients: 4, calm: true,
		actions: []action{
			{at: 1 * ms, kind: "send", who: 0, line: "LOCK a"},
			{at: 10 * ms, kind: "send", who: 1, line: "LOCK a OWNER o1"},
			{at: 20 * ms, kind: "send", who: 3, line: "FAIRLOCK a OWNER o1"},
			{at: 30 * ms, kind: "send", who: 2, line: "FAIRLOCK a"},
			{at: 50 * ms, kind: "send", who: 0, line: "UNLOCK a"},
			{at: 60 * ms, kind: "send", who: 1, line: "UNLOCK a OWNER o1"},
			{at: 70 * ms, kind: "send", who: 3, line: "UNLOCK a OWNER o1"},
		},
	},
	"a hold was believed in after an EXTENDLOCK with a shorter lease, whose answer was lost": {
		proxies: 2, clients: 2,
		actions: []action{
			{at: 1 * ms, kind: "send", who: 0, line: "LOCK a PX 9000"},
			{at: 5 * ms, kind: "send", who: 1, line: "LOCK a WAIT 8000"},
			{at: 20 * ms, kind: "cut own", who: 0, d: 7800 * ms, n: 1},
			{at: 30 * ms, kind: "send", who: 0, line: "EXTENDLOCK a PX 143"},
			{at: 30*ms + 100*time.Microsecond, kind: "cut lane", who: 0, d: 7800 * ms, d2: 10 * ms, n: 1},
		},
	},
	"a hold was believed in after a re-entry with a shorter lease, whose grant came too late": {
		proxies: 1, clients: 4, calm: true,
		actions: []action{
			{at: 4 * ms, kind: "send", who: 3, line: "FAIRLOCK a PX 3587 GRACE 164"},
			{at: 13 * ms, kind: "send", who: 0, line: "FAIRLOCK a MAXHOLD 4815"},
			{at: 15900 * time.Microsecond, kind: "send", who: 3, line: "LOCK a WAIT 410 PX 314"},
			{at: 16100 * time.Microsecond, kind: "pause", who: 0, d: 3254 * ms, d2: 2060 * ms, n: 1},
		},
	},
	"a release that found an older grant of its owner at a new primary was no loss, and the hold was renewed": overOlderGrant("UNLOCK a"),
	"an extension reset the lease of an older grant of its owner, which a new primary still had":              overOlderGrant("EXTENDLOCK a PX 900000"),
	"a loss was not told because a release was on its way, which was not sent in the end": {
		proxies: 2, clients: 2, shape: sentinels, replicas: 2,
		actions: []action{
			{at: 5 * ms, kind: "send", who: 0, line: "TRYLOCK a PX 1500"},
			{at: 100 * ms, kind: "outage", d: 4 * time.Second},
			{at: 200 * ms, kind: "send", who: 0, line: "UNLOCK a"},
			{at: 210 * ms, kind: "send", who: 0, line: "UNLOCK a", n: 1},
			{at: 300 * ms, kind: "send", who: 1, line: "LOCK a WAIT 8000"},
		},
	},
	"an extension that was sent before its proxy knew of the grant did not count, and the hold ended early": {
		proxies: 1, clients: 3,
		actions: []action{
			{at: 10 * ms, kind: "stall lane", d: 2 * time.Second},
			{at: 1000 * ms, kind: "send", who: 2, line: "TRYLOCK a OWNER o0"},
			{at: 1020 * ms, kind: "send", who: 1, line: "EXTENDLOCK a PX 5000 OWNER o0"},
		},
	},
	"the end of a lease ended the one that another proxy's session of its owner had set": {
		proxies: 2, clients: 2,
		actions: []action{
			{at: 10 * ms, kind: "send", who: 0, line: "LOCK s SHARED OWNER o0 PX 300"},
			{at: 60 * ms, kind: "send", who: 1, line: "EXTENDLOCK s PX 300 SHARED OWNER o0"},
		},
	},
	"a release of a hold that a failover had lost left the sum of the sessions too small": {
		proxies: 1, clients: 2, shape: sentinels, replicas: 2,
		actions: []action{
			{at: 1 * ms, kind: "send", who: 1, line: "LOCK a OWNER o0"},
			{at: 10 * ms, kind: "send", who: 0, line: "LOCK a OWNER o0"},
			{at: 20 * ms, kind: "replicas away", d: 300 * ms},
			{at: 30 * ms, kind: "send", who: 1, line: "LOCK a OWNER o0"},
			{at: 50 * ms, kind: "send", who: 1, line: "LOCK a OWNER o0"},
			{at: 80 * ms, kind: "promote", line: "a", d: 60 * ms},
			{at: 200 * ms, kind: "send", who: 1, line: "UNLOCK a OWNER o0"},
			{at: 300 * ms, kind: "send", who: 0, line: "UNLOCK a OWNER o0"},
		},
	},
	"the last release did nothing, because an extension behind it had overtaken it": {
		proxies: 1, clients: 1, shape: sentinels, replicas: 2, smooth: true,
		actions: []action{
			{at: 1 * ms, kind: "send", line: "LOCK a"},
			{at: 30 * ms, kind: "send", line: "UNLOCK a"},
			{at: 30100 * time.Microsecond, kind: "fail over", line: "a"},
			{at: 32 * ms, kind: "send", line: "EXTENDLOCK a PX 90000", n: 1},
		},
	},
	"an extension was believed in that a release behind it had overtaken": {
		proxies: 2, clients: 2, shape: sentinels, replicas: 2,
		actions: []action{
			{at: 1 * ms, kind: "send", line: "LOCK a"},
			{at: 5 * ms, kind: "send", line: "LOCK a"},
			{at: 40 * ms, kind: "stop primary", line: "a", d: 80 * ms, d2: time.Second},
			{at: 41 * ms, kind: "send", line: "EXTENDLOCK a PX 5000"},
			{at: 41 * ms, kind: "send", line: "UNLOCK a", n: 1},
			{at: 50 * ms, kind: "send", who: 1, line: "LOCK a"},
			{at: 1000 * ms, kind: "pause", d: 3400 * ms},
		},
	},
	"a re-entry was in doubt whose time was over while its hash slot was being moved": {
		proxies: 1, clients: 1, shape: cluster, replicas: 2, strict: true, smooth: true, slowOwn: 60 * ms,
		actions: []action{
			{at: 1 * ms, kind: "send", line: "LOCK a"},
			{at: 5 * ms, kind: "reshard", line: "a", d: 2 * time.Second},
			{at: 6 * ms, kind: "send", line: "LOCK a WAIT 1150"},
			{at: 8 * ms, kind: "send", line: "UNLOCK a"},
			{at: 9 * ms, kind: "send", line: "UNLOCK a"},
		},
	},
	"a re-entry was refused because its own lease was over, while its hash slot was being moved": {
		proxies: 1, clients: 1, shape: cluster, replicas: 2, strict: true, smooth: true,
		actions: []action{
			{at: 1 * ms, kind: "send", line: "LOCK a"},
			{at: 5 * ms, kind: "reshard", line: "a", d: 1900 * ms},
			{at: 6 * ms, kind: "send", line: "LOCK a PX 335"},
			{at: 8 * ms, kind: "send", line: "UNLOCK a"},
			{at: 9 * ms, kind: "send", line: "UNLOCK a"},
		},
	},
	"a shared holder stood in the queue under the place of other waiters, was not woken, and left it behind": {
		proxies: 1, clients: 3,
		actions: []action{
			{at: 1 * ms, kind: "send", who: 1, line: "LOCK s SHARED"},
			{at: 2 * ms, kind: "send", who: 0, line: "FAIRLOCK s SHARED"},
			{at: 10 * ms, kind: "send", who: 0, line: "FAIRLOCK s"},
			{at: 300 * ms, kind: "send", who: 1, line: "UNLOCK s"},
			{at: 310 * ms, kind: "send", who: 0, line: "UNLOCK s"},
		},
	},
	"a shared hold was lost while its hash slot was being moved, because its keys were on two servers": {
		proxies: 1, clients: 1, shape: cluster, replicas: 2, smooth: true,
		actions: []action{
			{at: 1 * ms, kind: "send", line: "LOCK s SHARED SYNC 2"},
			{at: 100 * ms, kind: "reshard", line: "s", d: 2500 * ms},
			{at: 4 * time.Second, kind: "send", line: "UNLOCK s"},
		},
	},
	"a permit was released by a late copy of an earlier release, which had named none": {
		proxies: 1, clients: 1, permits: true,
		actions: []action{
			{at: 170 * ms, kind: "stall lane", d: 206 * ms, d2: 2527 * ms, n: 2},
			{at: 180 * ms, kind: "send", line: "UNLOCK p"},
			{at: 303 * ms, kind: "cut lane", d: 121 * ms, d2: 2727 * ms, n: 2},
			{at: 1083 * ms, kind: "send", line: "FAIRLOCK p LIMIT 3"},
		},
	},
	"a session was recorded anew by the answer to its UNLOCK by the fence, which came behind its end": {
		proxies: 1, clients: 6, shape: cluster, replicas: 2,
		actions: []action{
			{at: 9 * ms, kind: "send", who: 2, line: "FAIRLOCK a WAIT 7255"},
			{at: 11 * ms, kind: "outage", d: 2700 * ms, d2: 1112 * ms, n: 1},
			{at: 19 * ms, kind: "force", line: "a", n: 1},
			{at: 149 * ms, kind: "pause", d: 3171 * ms},
			{at: 283 * ms, kind: "hang up", n: 2},
		},
	},
	"a shared waiter was not told that the place of an owner had gone which held the lock already": {
		proxies: 2, clients: 8, calm: true,
		actions: []action{
			{at: 1 * ms, kind: "send", who: 1, line: "LOCK s"},
			{at: 20 * ms, kind: "send", who: 2, line: "FAIRLOCK s OWNER o1 SHARED"},
			{at: 40 * ms, kind: "send", who: 4, line: "LOCK s OWNER o0 SHARED"},
			{at: 60 * ms, kind: "send", who: 6, line: "FAIRLOCK s OWNER o0 SHARED"},
			{at: 80 * ms, kind: "send", who: 3, line: "LOCK s SHARED"},
			{at: 120 * ms, kind: "send", who: 1, line: "UNLOCK s"},
		},
	},
	"a place was left behind that a hand-over took for a waiter when the one in front of it had been offered a permit": {
		proxies: 2, clients: 7, permits: true,
		actions: []action{
			{at: 1 * ms, kind: "send", who: 0, line: "LOCK p LIMIT 2"},
			{at: 2 * ms, kind: "send", who: 2, line: "LOCK p LIMIT 2"},
			{at: 30 * ms, kind: "send", who: 4, line: "LOCK p LIMIT 2"},
			{at: 60 * ms, kind: "send", who: 6, line: "LOCK p LIMIT 2"},
			{at: 90 * ms, kind: "send", who: 0, line: "UNLOCK p"},
			{at: 90*ms + 50*time.Microsecond, kind: "stall lane", d: 30 * ms},
			{at: 90*ms + 60*time.Microsecond, kind: "send", who: 2, line: "UNLOCK p"},
			{at: 91 * ms, kind: "send", who: 1, line: "FAIRLOCK p LIMIT 1"},
			{at: 92 * ms, kind: "hang up", who: 6},
		},
	},
	"a re-entry was refused when the hold had ended while its hash slot was being moved": {
		proxies: 1, clients: 1, shape: cluster, replicas: 2, strict: true, smooth: true,
		actions: []action{
			{at: 1 * ms, kind: "send", line: "LOCK a"},
			{at: 5 * ms, kind: "reshard", line: "a", d: 20 * time.Second},
			{at: 6 * ms, kind: "send", line: "LOCK a"},
			{at: 8 * ms, kind: "send", line: "UNLOCK a"},
		},
	},
}

func TestRegressions(t *testing.T) {
	for name, p := range regressions {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) { // latencies decide as well
				try := *p
				try.seed = seed
				if w := try.play(false); w.broken != "" {
					report(t, &try, w.broken)
					return
				}
			}
		})
	}
}
