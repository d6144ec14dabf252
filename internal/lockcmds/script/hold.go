package script

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Release releases one hold.
type Release struct {
	Key string
	Part
	Lease time.Duration // least lease that goes on if holds are left; 0: its TTL stays
}

// Call is the call of release.
func (r Release) Call() Call {
	pairs := []string{"owner", r.Owner, "fence", itoa(r.Fence)}
	if r.Session != "" || r.Holds != 0 || r.Shared && r.Lease == 0 { // else the rest would say nothing
		pairs = append(pairs, "holds", itoa(r.Holds), "lease", millis(r.Lease), "field", r.field())
	}
	return release.ofHold(r.Key, r.timeout(r.Key), pairs...)
}

// timeout is the lease of a hold that is known to be shared; else empty.
func (p Part) timeout(key string) string {
	if !p.Shared {
		return ""
	}
	return timeoutOf(key, p.Owner)
}

// HandOver is a Release that grants the lock in the same step to the waiter whose turn it is.
type HandOver struct {
	Release
	Wait  time.Duration // the unit of deadlines in the queue
	Crowd string        // the name under which the plain waiters of the proxy stand in queues
	Stays bool          // the place of the plain waiters stays in the queue after a grant to them
	Plain *Acquire      // of the first of the plain waiters here; nil: there is none
	Fair  *Acquire      // of the first of the fair ones

	FairPlace string // its place in the queue
}

// Call is the call of handover.
func (h HandOver) Call() Call {
	all := []string{
		"owner", h.Owner, "fence", itoa(h.Fence), "holds", itoa(h.Holds), "lease", millis(h.Lease), "field", h.field(),
		"wait", millis(h.Wait), "crowd", PlaceOf(h.Key, h.Crowd), "stays", flag(h.Stays),
	}
	if w := h.Plain; w != nil {
		all = append(all,
			"plain_owner", w.Owner, "plain_lease", millis(w.Lease), "plain_name", w.Name, "plain_tell", w.tell())
	}
	if w := h.Fair; w != nil {
		all = append(all, "fair_owner", w.Owner, "fair_lease", millis(w.Lease), "fair_name", w.Name,
			"fair_tell", w.tell(), "fair_place", h.FairPlace)
	}
	return handover.of(h.Key, all...)
}

// Waiters that a HandOver may have granted the lock to.
const (
	ToNobody = iota
	ToPlain
	ToFair
	ToNamed // the one that the call has named
)

// Released is the answer to Release and HandOver.
type Released struct {
	Status  Status        // Held, Freed, NotHolder or OtherGrant
	Fence   int64         // of the grant; 0: it was taken without one
	Holds   int64         // of the owner that are left
	To      int64         // ToNobody, ToPlain, ToFair or ToNamed
	Granted int64         // fence of that waiter's grant
	PTTL    time.Duration // of that grant, as in Acquired
	Waited  bool          // the lock is free, and was kept for a waiter if one listens
	Placed  bool          // Place is known
	Place   int64         // of the plain waiters, as in table/turns.go
	Damage  Damage
}

// Decode decodes the answer of release, and of handover to a HandOver with this Release.
func (r *Release) Decode(v resp.Value) (Released, error) {
	if v.Kind == resp.Integer && v.Int < 0 {
		return Released{Status: Freed, Granted: -v.Int, Fence: r.Fence, To: ToNamed, Placed: true}, nil
	}
	n, err := numbersOf(v)
	if err != nil {
		return Released{}, err
	}
	switch n.at[0] {
	case handedOver:
		return Released{
			Status: Freed, Granted: n.at[1], Fence: n.at[2], Damage: Damage(n.at[3]),
			To: n.at[4], Placed: true, Place: n.at[5], PTTL: n.duration(6),
		}, nil
	case done:
		return Released{
			Status: Freed, Fence: n.at[1], Damage: Damage(n.at[3]), Placed: n.len > 5, Place: n.at[5], Waited: n.len > 3,
		}, nil
	case notNow:
		return Released{Status: Held, Holds: n.at[1], Fence: n.at[2]}, nil
	case notHolder:
		return Released{Status: NotHolder}, nil
	case otherGrant:
		return Released{Status: OtherGrant, Fence: n.at[1]}, nil
	}
	return Released{}, errStrange
}

// Drop ends a grant that no client relies on, or shortens its lease. It may run at any time, any number of times. Of a
// named owner it is about the grant that the acquire with the name has made, if no other session takes part in it.
type Drop struct {
	Key string
	Part
	Keep time.Duration // the most that may be left of the lease; 0: the grant ends
}

// Call is the call of drop.
func (d Drop) Call() Call {
	return drop.of(d.Key,
		"owner", d.Owner, "fence", itoa(d.Fence), "keep", millis(d.Keep), "name", d.Name)
}

// Force ends grants of a lock of any holder.
type Force struct {
	Key   string
	Owner string // whose grants are meant; empty: any
	Fence int64  // the handle of the grant that is meant, and no loss is told; AnyGrant: any
}

// AnyGrant is no fence: any grant is meant.
const AnyGrant = -1

// Call is the call of force.
func (f Force) Call() Call {
	lost := Lost(f.Key)
	if f.Fence != AnyGrant {
		lost = ""
	}
	all := []string{"fence", itoa(f.Fence), "lost", lost, "forced", ForcedChannel}
	if f.Owner != "" {
		all = append(all, "owner", f.Owner)
	}
	return force.of(f.Key, all...)
}

// Forced is one grant that Force has ended.
type Forced struct {
	Owner  string // whose grant was ended
	Fence  int64  // 0: it was taken without one
	Handle bool   // it was ended by its handle; the caller sets it
}

// Message is the text of the message on ForcedChannel, as force publishes it: the fence, a blank and the lock. An
// end by the handle has a minus before the fence, and behind it the proof and another blank.
func (f Forced) Message(lock string) string {
	if f.Handle {
		return "-" + itoa(f.Fence) + " " + proofOf(f.Owner, f.Fence) + " " + lock
	}
	return itoa(f.Fence) + " " + lock
}

// proofOf shows that the publisher of an end by the handle knows the owner of the grant: it could read the lock. The
// channel and the fence counter are open to all tenants, so without it one could have another's loss pass as released.
func proofOf(owner string, fence int64) string {
	sum := sha1.Sum([]byte(owner + " " + itoa(fence)))
	return hex.EncodeToString(sum[:])
}

// ForcedMessage is such a text as it was received. Nothing in it is known to be true.
type ForcedMessage struct {
	Lock  string
	Fence int64
	proof string // empty: an end by force
}

// ReadForced reads a text.
func ReadForced(text string) (m ForcedMessage, ok bool) {
	number, lock, _ := strings.Cut(text, " ")
	if handle, is := strings.CutPrefix(number, "-"); is {
		number = handle
		m.proof, lock, _ = strings.Cut(lock, " ")
	}
	fence, err := strconv.ParseInt(number, 10, 64)
	m.Lock, m.Fence = lock, fence
	return m, err == nil && fence > 0
}

// IsHandle reports whether the message proves that the grant of that owner was released by its handle.
func (m ForcedMessage) IsHandle(owner string) bool { return m.proof == proofOf(owner, m.Fence) }

// Message is what Tell publishes.
type Message struct{ Channel, Text string }

// Tell publishes messages about locks of one hash slot, in their order.
type Tell struct {
	Key      string // one of the locks
	Messages []Message
}

// Call is the call of tell.
func (t Tell) Call() Call {
	c := tell.of(t.Key)
	for _, m := range t.Messages {
		c.Args = tell.appendRow(c.Args, "to", m.Channel, "text", m.Text)
	}
	return c
}

// DecodeForced decodes the answer of force: the grants that were ended.
func DecodeForced(v resp.Value) (all []Forced, err error) {
	if v.IsError() {
		return nil, ErrorOf(v)
	}
	for f := v.Elems; len(f) >= 2; f = f[2:] {
		all = append(all, Forced{Owner: string(f[0].Str), Fence: f[1].Int})
	}
	return all, nil
}

// Extend resets the lease of a lock that its owner holds. Of its Part Owner, Session, By and Fence count.
type Extend struct {
	Key string
	Part
	Lease time.Duration // from now, > 0
}

// Call is the call of extend.
func (x Extend) Call() Call {
	return extend.of(x.Key,
		"owner", x.Owner, "lease", millis(x.Lease), "fence", itoa(x.Fence), "field", x.field())
}

// Extended is the answer to Extend.
type Extended struct {
	Held         bool // the owner is the holder, by the grant that was meant
	Fence, Holds int64
}

// DecodeExtended decodes the answer of extend.
func DecodeExtended(v resp.Value) (Extended, error) {
	n, err := numbersOf(v)
	return Extended{Held: n.at[0] == done, Fence: n.at[1], Holds: n.at[2]}, err
}

// Renewal is one lease of a Renew.
type Renewal struct {
	Key, Owner string
	Fence      int64         // of the grant; 0: any
	Lease      time.Duration // the least lease from now on; 0: it stays
	Note       string        // is written beside the hold; empty: one that is there stays
}

// note is the note as it is written: no client of Redisson's takes it for a number.
func (r Renewal) note() string {
	if r.Note == "" {
		return ""
	}
	return "#" + r.Note
}

// Renew renews leases that are still ours.
type Renew struct {
	Renewals []Renewal
	Shared   bool // they are shared holds
}

// Call is the call of renew.
func (r Renew) Call() Call {
	c, n := renew.of(""), len(r.Renewals)
	c.Keys, c.Args = make([]string, 0, 2*n), make([]string, 0, 4*n)
	for _, one := range r.Renewals {
		timeout := ""
		if r.Shared {
			timeout = timeoutOf(one.Key, one.Owner)
		}
		c.Keys = appendKeys(c.Keys, c.keys.row, one.Key, timeout)
		c.Args = c.appendRow(c.Args,
			"owner", one.Owner, "fence", itoa(one.Fence), "lease", millis(one.Lease), "note", one.note())
	}
	return c
}

// DecodeRenewed decodes the answer of renew: for each lease how many holds the owner has, 0: it is not ours any
// more.
func DecodeRenewed(v resp.Value) ([]int64, error) {
	if v.IsError() {
		return nil, ErrorOf(v)
	}
	if len(v.Elems) == 0 {
		return nil, errStrange
	}
	all := make([]int64, len(v.Elems))
	for i := range v.Elems {
		all[i] = v.Elems[i].Int
	}
	return all, nil
}

// Ask asks whether a client may run scripts.
type Ask struct{}

// Call is the call of ask.
func (Ask) Call() Call { return Call{Script: ask} }

// DecodeAsk decodes the answer of ask: Redis's time for HeldFor, or its refusal.
func DecodeAsk(v resp.Value) (now int64, err error) {
	n, err := numbersOf(v)
	return n.at[0], err
}

// HeldFor is how long the grant with a fence has been held at a time of Redis, both in microseconds: a fence is the
// time of its grant. -1: it is not known. The grant has no fence, the user may not ask for the time, or the clock has
// jumped back.
func HeldFor(fence, now int64) time.Duration {
	if fence <= 0 || now < fence {
		return -1
	}
	return time.Duration(now-fence) * time.Microsecond
}

// Info asks for the holders of a lock.
type Info struct {
	Key   string
	Owner string // of shared holders the only one of interest; empty: all are
	Fence int64  // with an Owner: of its permits the only one of interest; 0: all are
}

// Call is the call of info.
func (i Info) Call() Call {
	var all []string
	if i.Owner != "" {
		all = append(all, "owner", i.Owner)
	}
	if i.Owner != "" && i.Fence != 0 {
		all = append(all, "fence", itoa(i.Fence))
	}
	return info.of(i.Key, all...)
}

// How a lock is held, in the words of LOCKINFO.
const (
	ModeExclusive = "exclusive"
	ModeShared    = "shared"
	ModeLimit     = "limit"
)

// Described is the answer to Info.
type Described struct {
	Holders     []Holder      // none: the lock is free
	PTTL        time.Duration // the rest of the longest lease, or NoTTL
	Mode        string        // how they hold it; a read lock of Redisson is shared
	Limit       int64         // how many may hold a lock of ModeLimit
	FairWaiters int64
	Now         int64 // for HeldFor
}

// Holder is one owner that holds a lock.
type Holder struct {
	Owner        string
	Holds, Fence int64         // fence 0: it was taken without one
	PTTL         time.Duration // the rest of its lease, or NoTTL
	Note         string        // what its client, or the proxy, says of it; empty: nothing
}

// Find finds the holder by a grant; nil: there is none.
func (d *Described) Find(fence int64) *Holder {
	for i := range d.Holders {
		if d.Holders[i].Fence == fence {
			return &d.Holders[i]
		}
	}
	return nil
}

// DecodeDescribed decodes the answer of info. Shared holders come in the order of their fences.
func DecodeDescribed(v resp.Value) (d Described, err error) {
	if v.IsError() {
		return d, ErrorOf(v)
	}
	f := v.Elems
	if len(f) < 10 {
		return d, nil
	}
	d.PTTL, d.FairWaiters, d.Now, d.Mode = time.Duration(f[0].Int)*time.Millisecond, f[1].Int, f[2].Int, ModeExclusive
	switch string(f[3].Str) {
	case "read":
		d.Mode = ModeShared
	case "limit":
		d.Mode, d.Limit = ModeLimit, f[4].Int
	}
	for f = f[5:]; len(f) >= 5; f = f[5:] {
		h := Holder{
			Owner: string(f[0].Str), Holds: f[1].Int, Fence: f[2].Int, PTTL: time.Duration(f[3].Int) * time.Millisecond,
		}
		if note, ok := strings.CutPrefix(string(f[4].Str), "#"); ok {
			h.Note = note
		}
		d.Holders = append(d.Holders, h)
	}
	if d.Mode != ModeExclusive {
		slices.SortFunc(d.Holders, func(a, b Holder) int { return cmp.Compare(a.Fence, b.Fence) })
	}
	return d, nil
}

// Bound gives a held lock a TTL again that a client has removed.
type Bound struct {
	Key   string
	Lease time.Duration // > 0
}

// Call is the call of bound.
func (b Bound) Call() Call { return bound.of(b.Key, "lease", millis(b.Lease)) }

// Prove tells whether a grant is on a server, by a write that changes nothing. WAIT behind it counts the replicas that
// have the grant.
type Prove struct {
	Key  string
	Part // of the acquire; Holds are the owner's behind it
}

// Call is the call of prove.
func (p Prove) Call() Call {
	return prove.ofHold(p.Key, p.timeout(p.Key), "owner", p.Owner, "fence", itoa(p.Fence), "holds", itoa(p.Holds))
}
