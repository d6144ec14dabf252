package command

import "github.com/lockproxy/lockproxy/internal/resp"

// Commands that sessions send on their own account. They must not be changed.
var (
	Hello     = resp.AppendCommand(nil, "HELLO")
	ReplyOn   = resp.AppendCommand(nil, "CLIENT", "REPLY", "ON") // answers OK to every sender
	Asking    = resp.AppendCommand(nil, "ASKING")
	Multi     = resp.AppendCommand(nil, "MULTI")
	Exec      = resp.AppendCommand(nil, "EXEC")
	Unwatch   = resp.AppendCommand(nil, "UNWATCH")
	Malformed = resp.AppendCommand(nil, "EVALSHA") // every Redis refuses it before it does anything
)
