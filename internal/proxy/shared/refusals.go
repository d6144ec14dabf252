package shared

import (
	"errors"

	"lockproxy/internal/lockcmds/engines"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// NoUpstream is the reply to a command that cannot be sent.
var NoUpstream = resp.AppendError(nil, resp.NoUpstream, "upstream is not reachable, nothing was sent")

// NoLaneFree is the reply when the session's identity cannot have a lane.
var NoLaneFree = resp.AppendError(nil, resp.Overloaded, "no connection to share is free for this identity (max-lanes), nothing was sent")

// NoEngineFree is the reply when the session's identity cannot have a lock engine.
var NoEngineFree = resp.AppendError(nil, resp.Overloaded, engines.ErrFull.Error()+" (max-lock-engines), nothing was sent")

// ErrLogins refuses a connection for judging an identity change.
var ErrLogins = errors.New("no upstream connection is free for logins")

// NoPinFree is the reply when there is no connection to Redis for a command.
func NoPinFree(why error) []byte {
	setting := "max-pins"
	switch {
	case errors.Is(why, upstream.ErrPinShare):
		setting = "max-pins-per-address"
	case errors.Is(why, ErrLogins):
		setting = "max-logins"
	}
	return resp.AppendError(nil, resp.Overloaded, why.Error()+" ("+setting+"), nothing was sent")
}
