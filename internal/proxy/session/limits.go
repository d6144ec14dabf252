package session

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/resp"
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

// limitNames are the settings of the limits for which clients are closed, or words.
var limitNames = map[metrics.Reason]string{
	metrics.TooManyClients: "max-clients", metrics.QueryLimit: "client-query-buffer-limit",
	metrics.OutputLimit: "client-output-limit", metrics.PubSubLimit: "client-output-buffer-limit pubsub",
	metrics.SlowCommand: "large command", metrics.MemoryLimit: "max-memory",
}

// Closed counts and logs a client that is closed because it has reached a limit, with that number of bytes, or 0.
func (e *Proxy) Closed(limit metrics.Reason, client string, bytes int) {
	e.Counters.Closed[limit].Add(1)
	name := limitNames[limit]
	fields := []zap.Field{zap.String("limit", name), zap.String("client", client)}
	if bytes > 0 {
		fields = append(fields, zap.Int("bytes", bytes))
	}
	if limit == metrics.MemoryLimit {
		fields = append(fields, zap.Int64("all", e.Budget.Used()), zap.Int64("max_memory", e.Budget.Limit()))
	}
	e.Entries.Write(logging.Audit, "limit reached: client closed", name, fields...)
}

// LocksLeft counts and logs the locks of a client that is closed because of Redis.
func (e *Proxy) LocksLeft(client string, locks int) {
	e.Counters.LocksLeft.Add(int64(locks))
	e.Entries.Write(zap.WarnLevel, "client closed while it holds locks, which keep the rest of their leases", "",
		zap.String("client", client), zap.Int("locks", locks))
}

// NoHandshake counts and logs a client that has not reached the protocol.
func (e *Proxy) NoHandshake(client string, err error) {
	e.Counters.Closed[metrics.NoHandshake].Add(1)
	e.Entries.Write(zap.InfoLevel, "client closed: no handshake", "", zap.String("client", client), zap.Error(err))
}

// WaitRefused counts a client that may not wait for a lock, and logs it if that is for a limit.
func (e *Proxy) WaitRefused(limit, client string) {
	if limit == "" {
		e.Counters.Overloaded.Add(1)
		return
	}
	e.Refuse(nil, limit, client)
}

// noAuth is Redis's reply to the commands of a client that must log in first.
var noAuth = []byte("-NOAUTH Authentication required.\r\n")

// noLaneFree is the reply when the session's identity cannot have a lane.
var noLaneFree = resp.AppendError(nil, resp.Overloaded,
	"no connection to share is free for this identity, nothing was sent")

// noEngineFree is the reply when the session's identity cannot have a lock engine.
var noEngineFree = resp.AppendError(nil, resp.Overloaded, lockcmds.ErrFull.Error()+", nothing was sent")

// errLogins refuses a connection for judging an identity change.
var errLogins = errors.New("no upstream connection is free for logins")

// Refuse counts and logs that a client has reached a limit, and returns the reply.
func (e *Proxy) Refuse(words []byte, limit, client string) []byte {
	e.Counters.Overloaded.Add(1)
	e.Entries.Write(logging.Audit, "limit reached: command refused", limit,
		zap.String("limit", limit), zap.String("client", client))
	return words
}

// NoPinFree is the reply when there is no connection to Redis for a command.
func (e *Proxy) NoPinFree(why error, client string) []byte {
	if errors.Is(why, errLogins) {
		return e.Refuse(resp.AppendError(nil, resp.Overloaded, why.Error()+", nothing was sent"), "logins", client)
	}
	text := why.Error() + " (max-pins), nothing was sent"
	return e.Refuse(resp.AppendError(nil, resp.Overloaded, text), "max-pins", client)
}
