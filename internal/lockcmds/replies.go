package lockcmds

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file writes the replies of the lock commands. Each reply is one that docs/LOCKS.md lists.

// nullReply is the null reply: Redis refused, or the grant has been rolled back.
func nullReply(proto int) []byte { return resp.AppendNull(nil, proto) }

// failureReply is the error reply for a script that failed: Redis's own, contract.Unreachable or contract.Unanswered.
func failureReply(err error) []byte {
	var refusal script.Error
	var unsent *contract.UnsentError
	switch {
	case errors.As(err, &refusal):
		return resp.AppendRawError(nil, string(refusal))
	case errors.As(err, &unsent) && unsent.Reply != nil:
		return bytes.Clone(unsent.Reply)
	case errors.Is(err, contract.ErrUnsent):
		return contract.Unreachable
	default:
		return contract.Unanswered
	}
}

// lostLeaseReply says that the session lost the lock before.
func lostLeaseReply() []byte {
	return resp.AppendError(nil, resp.LostLease,
		"the lock was lost before this command: its lease ended, or it was taken away")
}

// notHeldReply says that the owner does not hold the lock: the connection, or an OWNER that the command names. With a
// fence it says that the owner does not hold it by that grant.
func notHeldReply(named bool, fence int64) []byte {
	switch {
	case fence != 0:
		return resp.AppendError(nil, resp.NotHeld, "the lock is not held with this fence")
	case named:
		return resp.AppendError(nil, resp.NotHeld, "this OWNER does not hold the lock")
	}
	return resp.AppendError(nil, resp.NotHeld, "this connection does not hold the lock "+
		"(is it pooled, shared, or new after a reconnect? name the FENCE of the grant, or an OWNER)")
}

// notHereReply says that no session of this proxy has the grant that EXTENDLOCK names by its fence.
func notHereReply() []byte {
	return resp.AppendError(nil, resp.NotHeld, "no connection of this proxy holds the lock with this fence "+
		"(EXTENDLOCK needs the proxy through which it was acquired)")
}

// nameFenceReply refuses a release or an extension that does not say which of several acquires of its connection it is
// about.
func nameFenceReply() []byte {
	return resp.AppendError(nil, resp.Err, "this connection has asked for the lock more than once, "+
		"perhaps for several tasks: name the FENCE of the grant; nothing was done")
}

// notSyncedReply says that a grant was rolled back because have of the replicas that it needs had it in time.
func notSyncedReply(have, needs int) []byte {
	why := fmt.Sprintf("%d of %d replicas had the grant in time, and it was rolled back", have, needs)
	return resp.AppendError(nil, resp.NotSynced, why)
}

// noReplicasReply says that a grant that all replicas must have was not asked for, because none is known.
func noReplicasReply() []byte {
	return resp.AppendError(nil, resp.NotSynced, "lock.sync is all, and no replica is known; nothing was granted")
}

// overloadedReply says why the client may not wait.
func overloadedReply(why string) []byte { return resp.AppendError(nil, resp.Overloaded, why) }

// lockInfo is what LOCKINFO and LOCKLIST show of one lock. Without a Key it is for LOCKINFO: its fair waiters are those
// of all proxies, and a Client without an address is none of this proxy, and not shown.
type lockInfo struct {
	Hold
	HeldFor time.Duration // of the grant; negative: not known, and not shown
	Limit   int64         // how many may hold it; 0: not known, and not shown
	Holders []lockHolder  // all of them; nil: only that one, or it is not known
}

// lockHolder is one of the owners that hold a lock.
type lockHolder struct {
	script.Holder
	Client contract.ClientInfo // without an address: it is none of this proxy, and not shown
}

// appendLockInfo appends a lock as a map.
func appendLockInfo(dst []byte, proto int, i lockInfo) []byte {
	m := mapAt(dst)
	if i.Key != "" {
		m.text("key", i.Key)
	}
	m.text("owner", i.Owner)
	m.number("holds", i.Holds)
	m.number("ttl-ms", i.TTL.Milliseconds())
	m.number("fence", i.Fence)
	m.number("fair-waiters", int64(i.Fair))
	m.number("local-waiters", int64(i.Waiters))
	if i.Key != "" || i.Client.Addr != "" {
		m.text("client", i.Client.Addr)
		m.text("name", i.Client.Name)
	}
	if i.Note != "" {
		m.text("note", i.Note)
	}
	if i.HeldFor >= 0 {
		m.number("held-ms", i.HeldFor.Milliseconds())
	}
	m.text("mode", i.Mode)
	if i.Reentry != "" {
		m.text("reentry", string(i.Reentry))
	}
	if i.Limit != 0 {
		m.number("limit", i.Limit)
	}
	if i.Holders != nil {
		holders := redcon.AppendArray(redcon.AppendBulkString(m.dst, "holders"), len(i.Holders))
		for _, h := range i.Holders {
			one := mapAt(holders)
			one.text("owner", h.Owner)
			one.number("holds", h.Holds)
			one.number("ttl-ms", h.PTTL.Milliseconds())
			one.number("fence", h.Fence)
			if h.Client.Addr != "" {
				one.text("client", h.Client.Addr)
				one.text("name", h.Client.Name)
			}
			if h.Note != "" {
				one.text("note", h.Note)
			}
			holders = one.end(proto)
		}
		m.dst = holders
		m.pairs++
	}
	return m.end(proto)
}

// mapReply is a map that is appended to dst pair by pair. Its header is put before the pairs at the end, when their
// number is known.
type mapReply struct {
	dst       []byte
	at, pairs int
}

func mapAt(dst []byte) mapReply { return mapReply{dst: dst, at: len(dst)} }

func (m *mapReply) text(name, value string) {
	m.dst = redcon.AppendBulkString(redcon.AppendBulkString(m.dst, name), value)
	m.pairs++
}

func (m *mapReply) number(name string, value int64) {
	m.dst = redcon.AppendInt(redcon.AppendBulkString(m.dst, name), value)
	m.pairs++
}

func (m *mapReply) end(proto int) []byte {
	return slices.Insert(m.dst, m.at, resp.AppendMapHeader(nil, proto, m.pairs)...)
}
