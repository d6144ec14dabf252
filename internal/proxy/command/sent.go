package command

import "github.com/lockproxy/lockproxy/internal/resp"

// A client that Redis lets do nothing before it authenticates is refused command by command, over a lane that it shares
// with others like it. Redis closes that connection if a command in array form has more than ten arguments, or one of
// more than 16 KiB. The client's own are held to that as they are read. Others become so large here: a line, which
// Redis does not limit in this way, is made an array, and a lock command a script with keys and arguments.

// Restricted returns n commands in a form that Redis does not close the lane for.
func Restricted(raw []byte, n int) []byte {
	if n != 1 {
		return raw // as the client has sent them
	}
	args := resp.Split(raw, nil)
	if !resp.Exceeds(args) {
		return raw
	}
	if line := resp.AppendInline(nil, args...); len(line) < maxLine {
		return line
	}
	return refusedAnyhow
}

// maxLine is the length of a line that Redis does not take any more.
const maxLine = 64 << 10

// refusedAnyhow stands for a command that cannot be sent: a client that has not authenticated is told so, and nothing
// runs if Redis has changed its mind meanwhile.
var refusedAnyhow = resp.AppendCommand(nil, "EVALSHA", "0000000000000000000000000000000000000000", "0")

// Commands that sessions send on their own account. They must not be changed.
var (
	Hello     = resp.AppendCommand(nil, "HELLO")
	ReplyOn   = resp.AppendCommand(nil, "CLIENT", "REPLY", "ON") // answers OK to every sender
	Asking    = resp.AppendCommand(nil, "ASKING")
	Multi     = resp.AppendCommand(nil, "MULTI")
	Malformed = resp.AppendCommand(nil, "EVALSHA") // every Redis refuses it before it does anything
)
