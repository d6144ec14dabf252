package cluster

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/internal/hashslot"
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
func (c *Route) begin(r *command.Request) bool {
	as := c.Host.Identity()
	if !c.Host.AwaitQuiet() {
		return false
	}
	if c.multiAs != nil && *c.multiAs == as {
		c.queued = c.newTx()
		return c.Host.Answer(r, []byte(resp.OK))
	}
	c.Host.AwaitReply()
	h := &reply.Reply{Session: c.Host, Muted: r.Muted, Missed: c.Host.Part}
	h.Done = func(exec []byte) {
		c.Host.Resume()
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
	tx.post(c, command.Aim{Slot: -1, At: c.Home()}, h)
	return true
}

// mayMulti reads the answer to an empty transaction.
func mayMulti(exec []byte) bool {
	return !resp.IsError(exec) || bytes.HasPrefix(exec, []byte("-EXECABORT "))
}

func (c *Route) newTx() *queuedTx {
	tx := &queuedTx{raw: slices.Clone(command.Multi), slot: -1, row: command.Row{Name: "exec"}}
	if _, state := c.pin(); state.Watching {
		tx.slot = c.watch.slot
	}
	return tx
}

// queue routes a command behind MULTI. false: the session waits.
func (c *Route) queue(r *command.Request) bool {
	if !c.Host.AwaitQuiet() {
		return false
	}
	tx, name := c.queued, r.Row.Name
	if r.Row.Malformed(r.Args) { // Redis refuses it whatever the state of its connection is, and has the words
		if tx.poisoned = true; name == "exec" {
			c.endTx()
		}
		c.Copied(r.Row, r.Raw, command.Aim{Slot: -1, At: c.Home()}).Post(reply.Passing(r.Muted))
		return true
	}
	switch name {
	case "multi":
		return c.Host.Answer(r, nested)
	case "watch":
		return c.Host.Answer(r, watchInTx)
	case "discard":
		c.endTx()
		return c.Host.Answer(r, []byte(resp.OK))
	case "exec":
		return c.exec(r)
	}
	if refusal := c.notQueued(r); refusal != nil {
		tx.poisoned = true
		return c.Host.Answer(r, refusal)
	}
	tx.raw = append(tx.raw, r.Raw...)
	tx.n++
	tx.row.Writes, tx.row.Script = tx.row.Writes || r.Row.Writes, tx.row.Script || r.Row.Script
	return c.Host.Answer(r, queued)
}

// notQueued is the refusal of a command that is not possible in a transaction; nil: it is possible. Other commands than
// those of data would leave a trace on a connection that the session shares, or are answered by the proxy.
func (c *Route) notQueued(r *command.Request) []byte {
	switch {
	case c.absent(r):
		return noCluster
	case r.Policy == command.PubSub:
		return command.NoSubscriptionsInTx
	case r.Policy == command.Lock:
		return command.LockInTx
	case scatter.NeedsAll(r.Row.Name, command.Keyword(r.Args, 1)):
		return allInTx
	}
	if refusal := c.impossible(r); refusal != nil {
		return refusal
	}
	switch r.Policy {
	case command.Shared, command.PinOnce, command.Transaction:
	default:
		return command.NotInTx
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
func (c *Route) exec(r *command.Request) bool {
	tx := c.queued
	_, state := c.pin()
	switch r.Slot = tx.slot; {
	case tx.poisoned:
		c.endTx()
		return c.Host.Answer(r, poisoned)
	case state.Watching && c.watch.broken:
		c.endTx()
		return c.Host.Answer(r, resp.AppendNullArray(nil, c.Host.Identity().Proto))
	case state.Watching:
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
		words := c.Host.Refusal()
		if words != nil {
			words = reply.Aborted(words)
		}
		return words
	}
	tx.post(c, command.Aim{Slot: tx.slot, At: r.At}, &reply.Reply{Session: c.Host, Muted: r.Muted, Refusal: abort})
	return true
}

// post sends the transaction on a lane. h handles the reply to EXEC.
func (tx *queuedTx) post(c *Route, to command.Aim, h reply.Handler) {
	p := c.Parcel(&tx.row, append(tx.raw, command.Exec...), to)
	p.Tx = 1 + tx.n
	p.Post(h)
}

// execAlone sends the transaction on a pin. false: the session waits for one.
func (c *Route) execAlone(r *command.Request) bool {
	if c.listening() {
		c.queued = nil
		return c.Host.Answer(r, listens)
	}
	switch refusal, ok := c.Host.TakePin(r, "multi"); {
	case refusal != nil:
		c.queued = nil
		return c.Host.Answer(r, refusal)
	case !ok:
		return false
	}
	c.keep(r)
	pin := c.Host.Pin()
	c.execOnPin(r, func(at reply.ID, why topology.Refusal) bool {
		if !c.elsewhere(pin, r, why) {
			c.queued = nil
			if !r.Muted {
				c.Host.Put(at, reply.Aborted(lastWords(why)), false)
			}
		}
		return true
	}, func() bool { return !pin.Hopeless() && c.elsewhere(pin, r, topology.Refusal{}) })
	return true
}

// execWatched sends the transaction on the connection that watches.
func (c *Route) execWatched(r *command.Request) {
	pin, muted := c.Host.Pin(), r.Muted
	c.execOnPin(r, func(at reply.ID, why topology.Refusal) bool {
		c.NoteRefusal(why, pin.At())
		c.queued = nil
		pin.Unwatched(false)
		if !muted {
			c.Host.Put(at, resp.AppendNullArray(nil, c.Host.Identity().Proto), false)
		}
		return true
	}, func() bool {
		c.Host.Abandon() // the keys are not watched any more
		return true
	})
}

// execOnPin sends the transaction on the session's pin. refused and unsent are those of its handler.
func (c *Route) execOnPin(r *command.Request, refused func(reply.ID, topology.Refusal) bool, unsent func() bool) {
	tx := c.queued
	pin, state := c.pin()
	raw, n, asking := slices.Concat(tx.raw, command.Exec), 2+tx.n, r.Asking && state.Fresh
	if asking {
		raw, n = slices.Concat(command.Asking, raw), n+1
	}
	pin.Send(raw, &guarded{
		host: c.Host, slot: tx.slot, ahead: newAhead(asking, 1+tx.n), refused: refused, unsent: unsent,
		to: &reply.Reply{
			Session: c.Host, Muted: r.Muted, Missed: func() { c.queued = nil },
			Done: func([]byte) {
				c.queued = nil
				pin.Unwatched(false)
			},
		},
	}, n)
}

// endTx forgets the transaction, and the WATCH before it.
func (c *Route) endTx() {
	c.queued = nil
	if pin, state := c.pin(); state.Watching {
		done := func([]byte) { pin.Unwatched(true) }
		pin.Send(command.Unwatch, &reply.Reply{Session: c.Host, Muted: true, Done: done}, 1)
	}
}

var (
	queued    = []byte("+QUEUED\r\n")
	nested    = resp.AppendError(nil, resp.Err, "MULTI calls can not be nested")
	watchInTx = resp.AppendError(nil, resp.Err, "WATCH inside MULTI is not allowed")
	crossSlot = []byte("-CROSSSLOT Keys in request don't hash to the same slot\r\n") // Redis's words
	allInTx   = resp.AppendRawError(nil, "CROSSSLOT A transaction is at one server, the command concerns all of them")
	poisoned  = resp.AppendRawError(nil, "EXECABORT Transaction discarded because of previous errors.")
)

// lastWords is the reply to a command that is not sent again. The client knows no other servers, so it names none.
func lastWords(why topology.Refusal) []byte {
	if why.Reason == topology.TryLate {
		return TryAgain
	}
	return clusterDown
}
