package sentinel

import (
	"cmp"
	"time"
)

// view is an epoch with its address; the zero value is none.
type view struct {
	epoch int64
	addr  string
}

// voice is the living answer of one Sentinel.
type voice struct {
	Answer
	votes bool // it counts for a majority
}

// A proof is what the servers themselves must show before a view is followed.
type proof uint8

const (
	noProof  proof = iota
	risen          // the server of the view is a primary
	fallen         // as risen, and the present server says that it is no primary, or cannot be reached
	promoted       // the server of the view becomes a primary within promotionLimit
)

// proposal is a view that follows from the words of the Sentinels.
type proposal struct {
	view
	proof proof
}

// agreedFor is the time for which a majority must have named another primary before it is followed whatever its epoch.
// A promoted replica that is followed ahead of the Sentinels' answers has that time, too: then they must have noticed
// the promotion.
const agreedFor = 5 * time.Second

// election decides which server is the primary by the words of the Sentinels. It is a state machine without I/O.
//
// A later failover has a greater epoch. But an epoch is comparable only among Sentinels that have told each other:
// Sentinels that were set up anew begin with 0, and those of another system may have any. So an epoch decides only with
// a majority, or for a server of which is known that it belongs to the present primary.
type election struct {
	present view

	// kin are the servers that Sentinels have listed as replicas of the present primary.
	kin map[string]bool

	rival string    // the address that a majority names in place of the present one; "": none
	since time.Time // when it began to
}

// tally is how Sentinels speak of one address.
type tally struct {
	voices, votes int
	epoch         int64           // the greatest
	replicas      map[string]bool // that they list
}

func count(all []voice) map[string]*tally {
	tallies := map[string]*tally{}
	for _, v := range all {
		t := tallies[v.Addr]
		if t == nil {
			t = &tally{epoch: v.Epoch, replicas: map[string]bool{}}
			tallies[v.Addr] = t
		}
		t.voices++
		if v.votes {
			t.votes++
		}
		t.epoch = max(t.epoch, v.Epoch)
		for _, replica := range v.Others {
			t.replicas[replica] = true
		}
	}
	return tallies
}

// judge returns the view that follows from the living answers of different Sentinels; the present one: there is no
// better. majority is that of the Sentinels that may vote, with or without an answer. refuted says that the process at
// the present address has said that it is no primary.
func (e *election) judge(now time.Time, all []voice, majority int, refuted bool) proposal {
	tallies := count(all)
	if e.present.addr == "" {
		return proposal{view: firstView(tallies, majority)}
	}
	mine := tallies[e.present.addr]
	if mine == nil {
		mine = &tally{}
	} else {
		e.present.epoch, e.kin = mine.epoch, mine.replicas
	}
	rival := leader(tallies, majority)
	if rival != "" && tallies[rival].voices <= mine.voices {
		rival = "" // it is the present one, or more Sentinels name that
	}
	if rival != e.rival {
		e.rival, e.since = rival, now
	}
	if rival != "" {
		t := tallies[rival]
		next := view{t.epoch, rival}
		switch {
		case t.epoch > e.present.epoch:
			return proposal{view: next}
		case !refuted && now.Sub(e.since) < agreedFor:
		case mine.voices > 0 && t.replicas[e.present.addr]:
			// The few may know of a failover of which the many do not know yet.
			return proposal{next, fallen}
		default:
			return proposal{next, risen}
		}
	}
	if mine.votes < majority {
		if next := e.successor(tallies); next.addr != "" {
			return proposal{next, risen}
		}
	}
	return proposal{view: e.present}
}

// firstView is that of the majority, else that of the greatest epoch.
func firstView(tallies map[string]*tally, majority int) (first view) {
	if addr := leader(tallies, majority); addr != "" {
		return view{tallies[addr].epoch, addr}
	}
	best := &tally{}
	for addr, t := range tallies {
		order := cmp.Or(cmp.Compare(t.epoch, best.epoch), cmp.Compare(t.voices, best.voices), cmp.Compare(first.addr, addr))
		if first.addr == "" || order > 0 {
			first, best = view{t.epoch, addr}, t
		}
	}
	return first
}

// leader is the address that a majority names; "": there is none.
func leader(tallies map[string]*tally, majority int) string {
	for addr, t := range tallies {
		if t.votes >= majority {
			return addr
		}
	}
	return ""
}

// successor is the view of the greatest epoch, if it is later than the present one, among those of servers that belong
// to the present primary.
func (e *election) successor(tallies map[string]*tally) (next view) {
	for addr, t := range tallies {
		later := t.epoch > e.present.epoch && e.kin[addr]
		if later && (next.addr == "" || t.epoch > next.epoch || t.epoch == next.epoch && addr < next.addr) {
			next = view{t.epoch, addr}
		}
	}
	return next
}

// believes reports whether a Sentinel is believed that it promotes a replica of a primary: others list that replica of
// the present primary, or the operator has named the Sentinel, and it speaks of the present primary or of one of its
// replicas.
func (e *election) believes(replica, primary string, configured bool) bool {
	return e.kin[replica] || configured && (primary == e.present.addr || e.kin[primary])
}

// follow makes a view the present one.
func (e *election) follow(next view) {
	if next.addr != e.present.addr {
		kin := map[string]bool{e.present.addr: true} // it is a replica from now on, or down
		for addr := range e.kin {
			kin[addr] = addr != next.addr
		}
		e.kin, e.rival = kin, ""
	}
	e.present = next
}
