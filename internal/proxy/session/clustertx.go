package session

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In front of a cluster a transaction is a batch. Its commands are queued here, and EXEC sends all of them at once to
// the server of their slot, which carries them out or refuses them all. Refused for another server's sake, the
// transaction is sent again as any command is. Behind a WATCH it goes out on the connection that watches, and never
// elsewhere: if it is refused there, the keys may have changed.

// A queuedTx is a transaction whose EXEC has not come.
type queuedTx struct {
	raw      []byte // MULTI, and the commands behind it
	n        int    // their number
	slot     int    // of their keys; -1: there are none
	poisoned bool   // a command was refused
	row      command.Row
}

// The greatest transaction that is sent on a lane. A larger one has a connection of its own.
const mostQueued, mostQueuedBytes = 256, 64 << 10

// watch is what a pin remembers of its WATCH.
type watch struct {
	slot   int  // of the watched keys; a WATCH of another slot is refused
	broken bool // the server no longer has them all, so it cannot tell whether they change
}

// begin answers a MULTI. The first one under an identity asks Redis by an empty transaction: without the right to MULTI
// the commands behind it would run one by one. false: the session waits.
func (c *shards) begin(r *request) bool {
	s := c.s
	if !s.awaitQuiet() {
		return false
	}
	if c.multiAs != nil && *c.multiAs == s.ident {
		c.queued = c.newTx()
		return s.answer(r, []byte(resp.OK))
	}
	s.wait = waitReply
	as := s.ident
	h := &reply.Reply{Session: s, Muted: r.Muted, Missed: s.partIfVital(r)}
	h.Done = func(exec []byte) {
		s.Resume()
		if mayMulti(exec) {
			c.multiAs, c.queued = &as, c.newTx()
		}
	}
	h.Replace = func(exec []byte) []byte {
		if mayMulti(exec) {
			return []byte(resp.OK)
		}
		return exec
	}
	tx := c.newTx()
	tx.post(c, command.Aim{Slot: -1, At: c.home()}, h)
	return true
}

// mayMulti reads the answer to an empty transaction.
func mayMulti(exec []byte) bool {
	return !resp.IsError(exec) || bytes.HasPrefix(exec, []byte("-EXECABORT "))
}

func (c *shards) newTx() *queuedTx {
	s := c.s
	tx := &queuedTx{raw: slices.Clone(command.Multi), slot: -1, row: command.Row{Name: "exec"}}
	if s.pin != nil && s.pin.tx.watching {
		tx.slot = c.watch.slot
	}
	return tx
}

// queue routes a command behind MULTI. false: the session waits.
func (c *shards) queue(r *request) bool {
	s := c.s
	if !s.awaitQuiet() {
		return false
	}
	tx, name := c.queued, r.Row.Name
	if name == "reset" || name == "quit" {
		c.queued = nil
		return s.local(r)
	}
	if r.Row.Malformed(r.Args) { // Redis refuses it whatever the state of its connection is, and has the words
		if tx.poisoned = true; name == "exec" {
			c.endTx()
		}
		c.Copied(r.Row, r.Raw, command.Aim{Slot: -1, At: c.home()}).Post(reply.Passing(r.Muted))
		return true
	}
	switch name {
	case "multi":
		return s.answer(r, nested)
	case "watch":
		return s.answer(r, watchInTx)
	case "discard":
		c.endTx()
		return s.answer(r, []byte(resp.OK))
	case "exec":
		return c.exec(r)
	}
	if refusal := c.notQueued(r); refusal != nil {
		tx.poisoned = true
		return s.answer(r, refusal)
	}
	tx.raw = append(tx.raw, r.Raw...)
	tx.n++
	tx.row.Writes, tx.row.Script = tx.row.Writes || r.Row.Writes, tx.row.Script || r.Row.Script
	return s.answer(r, queued)
}

// notQueued is the refusal of a command that is not possible in a transaction; nil: it is possible. Other commands than
// those of data would leave a trace on a connection that the session shares, or are answered by the proxy.
func (c *shards) notQueued(r *request) []byte {
	switch {
	case c.absent(r):
		return noCluster
	case r.Policy == command.PubSub:
		return noSubscriptionsInTx
	case r.Policy == command.Lock:
		return lockInTx
	case scatter.NeedsAll(r.Row.Name, command.Keyword(r.Args, 1)):
		return allInTx
	}
	if refusal := c.impossible(r); refusal != nil {
		return refusal
	}
	switch r.Policy {
	case command.Shared, command.PinOnce, command.Transaction:
	default:
		return notInTx
	}
	for _, i := range r.Row.Keys.All(r.Args, nil) {
		switch slot := hashslot.Of(r.Args[i]); c.queued.slot {
		case -1:
			c.queued.slot = slot
		case slot:
		default:
			return crossSlot
		}
	}
	return nil
}

// exec sends the transaction. false: the session waits.
func (c *shards) exec(r *request) bool {
	s, pin, tx := c.s, c.s.pin, c.queued
	watches := pin != nil && pin.tx.watching
	switch r.Slot = tx.slot; {
	case tx.poisoned:
		c.endTx()
		return s.answer(r, poisoned)
	case watches && c.watch.broken:
		c.endTx()
		return s.answer(r, resp.AppendNullArray(nil, s.ident.Proto))
	case watches:
		c.execWatched(r)
		return true
	}
	c.Adopt()
	if !r.Asking {
		r.At = c.serverOf(r)
	}
	if tx.n > mostQueued || len(tx.raw) > mostQueuedBytes {
		return c.execAlone(r)
	}
	c.queued, c.alone = nil, true
	abort := func() []byte {
		words := s.Refusal()
		if words != nil {
			words = reply.Aborted(words)
		}
		return words
	}
	tx.post(c, command.Aim{Slot: tx.slot, At: r.At}, &reply.Reply{Session: s, Muted: r.Muted, Refusal: abort})
	return true
}

// post sends the transaction on a lane. h handles the reply to EXEC.
func (tx *queuedTx) post(c *shards, to command.Aim, h reply.Handler) {
	p := c.Parcel(&tx.row, append(tx.raw, command.Exec...), to)
	p.Tx = 1 + tx.n
	p.Post(h)
}

// execAlone sends the transaction on a pin. false: the session waits for one.
func (c *shards) execAlone(r *request) bool {
	s := c.s
	if c.listening() {
		c.queued = nil
		return s.answer(r, listens)
	}
	if err := s.pinTimedOut; s.pin == nil && err != nil {
		s.pinTimedOut, c.queued = nil, nil
		return s.answer(r, s.proxy.NoPinFree(err, s.Addr))
	}
	if s.hasty = true; s.pin == nil && !s.takePin(r, "multi", command.Transaction) {
		return false
	}
	r.Keep()
	pin := s.pin
	c.execOnPin(r, func(at reply.ID, why topology.Refusal) bool {
		if !c.elsewhere(pin, r, why) {
			c.queued = nil
			if !r.Muted {
				s.out.put(at, reply.Aborted(lastWords(why)), false)
			}
		}
		return true
	}, func() bool { return !pin.conn.Hopeless() && c.elsewhere(pin, r, topology.Refusal{}) })
	return true
}

// execWatched sends the transaction on the connection that watches.
func (c *shards) execWatched(r *request) {
	s, pin, muted := c.s, c.s.pin, r.Muted
	c.execOnPin(r, func(at reply.ID, why topology.Refusal) bool {
		c.NoteRefusal(why, pin.conn.At())
		c.queued, pin.tx.watching = nil, false
		if !muted {
			s.out.put(at, resp.AppendNullArray(nil, s.ident.Proto), false)
		}
		return true
	}, func() bool {
		s.abandon() // the keys are not watched any more
		return true
	})
}

// execOnPin sends the transaction on the session's pin. refused and unsent are those of its handler.
func (c *shards) execOnPin(r *request, refused func(reply.ID, topology.Refusal) bool, unsent func() bool) {
	s, pin, tx := c.s, c.s.pin, c.queued
	to := &reply.Guarded{
		Session: s, Slot: tx.slot, Read: topology.ReadRefusal, Refused: refused, Unsent: unsent,
		To: &reply.Reply{
			Session: s, Muted: r.Muted, Missed: func() { c.queued = nil },
			Done: func([]byte) { c.queued, pin.tx.watching = nil, false },
		},
	}
	raw, n, asking := slices.Concat(tx.raw, command.Exec), 2+tx.n, r.Asking && pin.fresh
	if asking {
		raw, n = slices.Concat(command.Asking, raw), n+1
	}
	pin.fresh = false
	s.forward(r.Row, raw, &txReplies{s: s, slot: tx.slot, ahead: reply.NewAhead(asking, 1+tx.n), to: to}, n)
}

// endTx forgets the transaction, and the WATCH before it.
func (c *shards) endTx() {
	s := c.s
	c.queued = nil
	if pin := s.pin; pin != nil && pin.tx.watching {
		done := func([]byte) { pin.tx.watching, pin.spent = false, true }
		s.forward(ordinaryRow, command.Unwatch, &reply.Reply{Session: s, Muted: true, Done: done}, 1)
	}
}

// txReplies takes the replies to a transaction on a pin. to gets that to EXEC.
type txReplies struct {
	s     *Session
	slot  int
	ahead reply.Ahead
	to    reply.Handler
	part  []byte // of an error
}

// Take implements reply.Handler.
func (h *txReplies) Take(at reply.ID, b []byte, n int, more bool) int {
	exec, ended := h.ahead.Strip(b, n)
	switch ran, _ := h.ahead.Ran(); {
	case ran:
		h.s.abandon()
		return n
	case len(exec) == 0:
		return n
	case h.ahead.Failed():
		if h.part = append(h.part, exec...); more {
			return n
		}
		exec = h.ahead.Judge(h.slot, h.part)
	}
	h.to.Take(at, exec, ended, more)
	return n
}

// Lost implements reply.Handler.
func (h *txReplies) Lost(at reply.ID, _ int, sent bool) { h.to.Lost(at, 1, sent) }

var (
	queued    = []byte("+QUEUED\r\n")
	nested    = resp.AppendError(nil, resp.Err, "MULTI calls can not be nested")
	watchInTx = resp.AppendError(nil, resp.Err, "WATCH inside MULTI is not allowed")
	allInTx   = resp.AppendRawError(nil, "CROSSSLOT A transaction is at one server, the command concerns all of them")
	poisoned  = resp.AppendRawError(nil, "EXECABORT Transaction discarded because of previous errors.")
)

// lastWords is the reply to a command that is not sent again. The client knows no other servers, so it names none.
func lastWords(why topology.Refusal) []byte {
	if why.Reason == topology.TryLate {
		return cluster.TryAgain
	}
	return reply.ClusterDown
}
