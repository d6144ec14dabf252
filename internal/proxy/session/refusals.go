package session

import (
	"errors"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/resp"
)

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
