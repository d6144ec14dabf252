package session

import (
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// Clients can reach limits, and guess passwords, at any rate. So the log has the first entries of one kind in a period,
// and a summary of the others.
const (
	EntriesLogged = 10
	entriesPeriod = 10 * time.Second
)

// NewEntries returns the log for entries that clients can cause at will.
func NewEntries(log *zap.Logger) *logging.Repeats {
	return logging.NewRepeats(log, EntriesLogged, entriesPeriod)
}

// closed logs a client that is closed because it has reached a limit.
func (e *Proxy) closed(limit, client string, fields ...zap.Field) {
	fields = append([]zap.Field{zap.String("limit", limit), zap.String("client", client)}, fields...)
	e.Entries.Write(logging.Audit, "limit reached: client closed", limit, fields...)
}

// TooManyClients counts and logs a client that is refused.
func (e *Proxy) TooManyClients(client string) {
	e.Counters.Rejected.Add(1)
	e.closed("max-clients", client)
}

// LocksLeft counts and logs the locks of a client that is closed because of Redis.
func (e *Proxy) LocksLeft(client string, locks int) {
	e.Counters.LocksLeft.Add(int64(locks))
	e.Entries.Write(zap.WarnLevel, "client closed while it holds locks, which keep the rest of their leases", "",
		zap.String("client", client), zap.Int("locks", locks))
}

// NoHandshake counts and logs a client that has not reached the protocol.
func (e *Proxy) NoHandshake(client string, err error) {
	e.Counters.Handshakes.Add(1)
	e.Entries.Write(zap.InfoLevel, "client closed: no handshake", "", zap.String("client", client), zap.Error(err))
}

// QueryLimit counts and logs a client that is closed because too much of its input waits.
func (e *Proxy) QueryLimit(client string, n int) {
	e.Counters.QueryLimit.Add(1)
	e.closed("client-query-buffer-limit", client, zap.Int("bytes", n))
}

// unreadLimit is one of the limits of bytes that a client leaves unread.
type unreadLimit uint8

// The limits of all clients, and of those with subscriptions.
const (
	limitOutput unreadLimit = iota
	limitPubSub
)

// Unread counts and logs a client that is closed because it has left too many bytes unread.
func (e *Proxy) Unread(which unreadLimit, client string, n int) {
	counter, setting := &e.Counters.OutputLimit, "client-output-limit"
	if which == limitPubSub {
		counter, setting = &e.Counters.PubSubLimit, "client-output-buffer-limit pubsub"
	}
	counter.Add(1)
	e.closed(setting, client, zap.Int("bytes", n))
}

// SlowCommand counts and logs a client that is closed because its large command comes too slowly.
func (e *Proxy) SlowCommand(client string, n int) {
	e.Counters.SlowCommands.Add(1)
	e.closed("large command", client, zap.Int("bytes", n))
}

// MemoryLimit counts and logs a client that is closed because all clients together have too much memory and it has the
// most.
func (e *Proxy) MemoryLimit(client string, n int) {
	e.Counters.MemoryLimit.Add(1)
	e.closed("max-memory", client,
		zap.Int("bytes", n), zap.Int64("all", e.Budget.Used()), zap.Int64("max_memory", e.Budget.Limit()))
}

// WaitRefused counts a client that may not wait for a lock, and logs it if that is for a limit.
func (e *Proxy) WaitRefused(limit, client string) {
	if limit == "" {
		e.Counters.Overloaded.Add(1)
		return
	}
	e.Refuse(nil, limit, client)
}
