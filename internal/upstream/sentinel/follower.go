package sentinel

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// view is an address with the epoch of the failover that led there; the zero value is none.
type view struct {
	addr  string
	epoch int64
}

// A proof is what the servers themselves must show before a claim is followed.
type proof uint8

const (
	noProof  proof = iota
	risen          // the server of the claim does not say that it is a replica
	vacant         // as risen, and the present one says that it is a replica, or does not answer
	fallen         // as risen, and the present one says that it is a replica
	promoted       // the server of the claim says within promotionLimit that it is a primary
)

// leaves reports whether the role of the present server is its part of the proof.
func (p proof) leaves(present dial.Role) bool {
	return present == dial.Replica || p == vacant && present == dial.Unreachable
}

// rises reports whether the role of the server of a claim is its part of a proof. A server that does not tell its role
// without a login may be a primary: each connection of a client finds it out.
func rises(next dial.Role) bool { return next != dial.Replica && next != dial.Unreachable }

// A claim is a view in place of the present one. It is comparable.
type claim struct {
	view
	proof proof
}

// agreedFor is the time for which a majority must have named another primary before it is followed whatever its epoch.
// Sentinels tell each other of a failover every two seconds.
const agreedFor = 5 * time.Second

// follower decides which server is the primary by the words of the Sentinels. It is a state machine without I/O.
//
// A later failover has a greater epoch. But an epoch is comparable only among Sentinels that have told each other:
// Sentinels that were set up anew begin with 0. So an epoch says only how soon a majority is followed.
type follower struct {
	sentinels int // that are asked, with or without an answer
	present   view

	rival string    // the address that a majority names in place of the present one; "": none
	since time.Time // when it began to
}

// hear takes the living answers of different Sentinels, and returns the claim that follows from them; the zero value:
// the present view stays.
func (f *follower) hear(now time.Time, answers []answer) claim {
	tallies := map[string]tally{}
	for _, a := range answers {
		t := tallies[a.addr]
		tallies[a.addr] = tally{t.votes + 1, max(t.epoch, a.epoch)}
	}
	if mine, named := tallies[f.present.addr]; named {
		f.present.epoch = mine.epoch
	}
	var next view
	var votes int
	for addr, t := range tallies {
		if t.votes > f.sentinels/2 || t.votes == len(answers) { // there is one of these at most
			next, votes = view{addr, t.epoch}, t.votes
		}
	}
	majority := votes > f.sentinels/2
	rival := ""
	if majority && next.addr != f.present.addr {
		rival = next.addr
	}
	if rival != f.rival {
		f.rival, f.since = rival, now
	}
	switch {
	case next.addr == f.present.addr: // or both are unknown
		return claim{}
	case f.present.addr == "" && majority:
		return claim{next, noProof}
	case f.present.addr == "", majority && (next.epoch > f.present.epoch || now.Sub(f.since) >= agreedFor):
		return claim{next, risen}
	case majority:
		return claim{next, vacant}
	case next.addr != "":
		return claim{next, fallen}
	}
	return claim{}
}

// promise takes the word of a Sentinel that it has told a replica of a primary to become one. The Sentinels name it up to
// a second later, because they ask servers for their roles once a second; the epoch is theirs to tell.
func (f *follower) promise(replica, primary string) claim {
	if primary != f.present.addr {
		return claim{}
	}
	return claim{view{replica, f.present.epoch}, promoted}
}

// tally is how Sentinels speak of one address.
type tally struct {
	votes int
	epoch int64 // the greatest
}

// follow makes the view of a claim the present one.
func (f *follower) follow(next view) { f.present, f.rival = next, "" }
