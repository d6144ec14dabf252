// Package replies writes the replies of the lock commands. Each reply is one that docs/LOCKS.md or docs/ERRORS.md lists.
package replies

import (
	"errors"

	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// Null is the null reply: Redis refused, or the grant has been rolled back.
func Null(proto int) []byte { return resp.AppendNull(nil, proto) }

// Failure is the error reply for a script that failed: Redis's own, -NOUPSTREAM or -INDOUBT.
func Failure(err error) []byte {
	var refusal script.Error
	switch {
	case errors.As(err, &refusal):
		return resp.AppendRawError(nil, string(refusal))
	case errors.Is(err, contract.ErrUnsent):
		return resp.AppendError(nil, resp.NoUpstream, "nothing was sent")
	default:
		return resp.AppendError(nil, resp.InDoubt, "sent, but no answer came")
	}
}

// Failed is Failure for a client that speaks any protocol version.
func Failed(err error) func(proto int) []byte {
	return func(int) []byte { return Failure(err) }
}

// LostLease says that the session lost the lock before.
func LostLease() []byte { return resp.AppendError(nil, resp.LostLease, "the lease has ended before") }

// NotHeld says that the owner does not hold the lock.
func NotHeld() []byte {
	return resp.AppendError(nil, resp.NotHeld, "the owner does not hold this lock")
}

// Overloaded says why the client may not wait.
func Overloaded(why string) []byte { return resp.AppendError(nil, resp.Overloaded, why) }

// Info is what LOCKINFO and LOCKLIST show of one lock.
type Info struct {
	Key          string // shown by LOCKLIST only; empty: LOCKINFO
	Owner        string
	Holds, Fence int64
	TTL          int64               // in milliseconds
	Fair, Local  int64               // waiters: in the fair queue, and of this proxy
	Client       contract.ClientInfo // shown by LOCKLIST only
}

// AppendInfo appends a lock as a map.
func AppendInfo(dst []byte, proto int, i Info) []byte {
	pairs := 6
	if i.Key != "" {
		pairs = 9
	}
	dst = resp.AppendMapHeader(dst, proto, pairs)
	if i.Key != "" {
		dst = appendText(dst, "key", i.Key)
	}
	dst = appendText(dst, "owner", i.Owner)
	dst = appendNumber(dst, "holds", i.Holds)
	dst = appendNumber(dst, "ttl-ms", i.TTL)
	dst = appendNumber(dst, "fence", i.Fence)
	dst = appendNumber(dst, "fair-waiters", i.Fair)
	dst = appendNumber(dst, "local-waiters", i.Local)
	if i.Key != "" {
		dst = appendText(dst, "client", i.Client.Addr)
		dst = appendText(dst, "name", i.Client.Name)
	}
	return dst
}

func appendText(dst []byte, name, value string) []byte {
	return redcon.AppendBulkString(redcon.AppendBulkString(dst, name), value)
}

func appendNumber(dst []byte, name string, value int64) []byte {
	return redcon.AppendInt(redcon.AppendBulkString(dst, name), value)
}
