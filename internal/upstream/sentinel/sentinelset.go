package sentinel

import (
	"slices"
	"time"
)

// Limits of the Sentinels that are asked though no configuration names them.
const (
	// mostLearnt bounds them.
	mostLearnt = 16
	// silentFor is the time after which a configured one that does not answer leaves the others to themselves.
	silentFor = time.Minute
	// unlistedFor is the time after which one is forgotten that no other Sentinel lists, unless it answers and no
	// configured one does.
	unlistedFor = time.Minute
	// recent is the age of an answer up to which its Sentinel is known to be at its address.
	recent = 3 * time.Second
)

// A Peer is a Sentinel by the word of another one.
type Peer struct {
	ID   string // that the Sentinel has given itself; it must tell the same when it is asked
	Addr string // host:port at which it is reached
	Down bool   // it does not answer
}

// A Member is a Sentinel that is asked.
type Member struct {
	Number     int // in the order in which they have joined, from 0 on
	Addr       string
	Configured bool   // by the operator: it stays
	ID         string // of the configured ones by their own word, else by that of the others; "": it is not known yet

	answered time.Time // last
	listed   time.Time // by another Sentinel, last
}

// A sentinelSet is the Sentinels that are asked.
//
// It has those of the configuration, and others of which these tell that they watch the same primary. Over the years
// all those of the configuration may be replaced. It is a state machine without I/O: answers go in, Sentinels that join
// and leave come out.
type sentinelSet struct {
	members []Member
	next    int // number
}

// newSentinelSet returns the Sentinels of the configuration, by their addresses.
func newSentinelSet(addrs []string) *sentinelSet {
	r := &sentinelSet{}
	for _, addr := range addrs {
		r.add(Member{Addr: addr, Configured: true})
	}
	return r
}

func (r *sentinelSet) add(m Member) Member {
	m.Number = r.next
	r.next++
	r.members = append(r.members, m)
	return m
}

func (r *sentinelSet) at(number int) *Member {
	for i := range r.members {
		if r.members[i].Number == number {
			return &r.members[i]
		}
	}
	return nil
}

// Members are the Sentinels that are asked now. The caller must not change them.
func (r *sentinelSet) Members() []Member { return r.members }

// Configured reports whether the operator has named a member.
func (r *sentinelSet) Configured(number int) bool {
	m := r.at(number)
	return m != nil && m.Configured
}

// led reports whether a Sentinel of the configuration has answered lately.
func (r *sentinelSet) led(now time.Time) bool {
	return slices.ContainsFunc(r.members, func(m Member) bool { return m.Configured && now.Sub(m.answered) <= silentFor })
}

// Voters are the Sentinels whose majority counts.
type Voters struct {
	Number     int  // of different ones, as far as is known
	configured bool // those of the configuration; else the others
}

// Has reports whether a Sentinel may vote.
func (v Voters) Has(m Member) bool { return m.Configured == v.configured }

// Voters are the Sentinels of the configuration. If none of them has answered for long, the others vote.
func (r *sentinelSet) Voters(now time.Time) Voters {
	v := Voters{configured: r.led(now) || r.learnt() == 0}
	seen := map[string]bool{}
	for _, m := range r.members {
		if v.Has(m) && !seen[m.ID] {
			seen[m.ID] = m.ID != ""
			v.Number++
		}
	}
	return v
}

// Answered takes the answer of a Sentinel that knows the primary by its name. id is its own; "": it does not tell.
// counts: so does its answer. It does not if another Sentinel is at the address than the one that is listed. joins are
// to be asked from now on, leaves not any more.
//
// The Sentinels of the configuration say which others there are. If none of them has answered for long, the others say
// so themselves.
func (r *sentinelSet) Answered(
	number int, id string, peers []Peer, now time.Time,
) (counts bool, joins, leaves []Member) {
	from := r.at(number)
	if from == nil || !from.Configured && from.ID != id {
		return false, nil, nil
	}
	from.answered = now
	if id != "" {
		from.ID = id
	}
	led := r.led(now)
	if led && !from.Configured {
		return true, nil, nil
	}
	for _, p := range peers {
		if r.lists(p, now) || p.Down || p.ID == "" || p.ID == id {
			continue
		}
		if r.learnt() < mostLearnt {
			joins = append(joins, r.add(Member{Addr: p.Addr, ID: p.ID, answered: now, listed: now}))
		}
	}
	r.members = slices.DeleteFunc(r.members, func(m Member) bool {
		leave := !m.Configured && now.Sub(m.listed) > unlistedFor && (led || now.Sub(m.answered) > unlistedFor)
		if leave {
			leaves = append(leaves, m)
		}
		return leave
	})
	return true, joins, leaves
}

// lists notes that a Sentinel is listed, and reports whether it is asked already. One that is known at another address,
// and does not answer there, has moved.
func (r *sentinelSet) lists(p Peer, now time.Time) (known bool) {
	for i := range r.members {
		m := &r.members[i]
		if m.Addr == p.Addr || p.ID != "" && m.ID == p.ID && now.Sub(m.answered) < recent {
			m.listed = now
			known = true
			if !m.Configured && p.ID != "" {
				m.ID = p.ID // another Sentinel has taken its place
			}
		}
	}
	return known
}

// learnt is how many are asked that the configuration does not name.
func (r *sentinelSet) learnt() (n int) {
	for _, m := range r.members {
		if !m.Configured {
			n++
		}
	}
	return n
}
