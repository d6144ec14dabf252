package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
)

// This file answers CLIENT LIST, KILL and UNBLOCK, which concern other clients of the proxy and of Redis. Redis gets the command
// first, or a harmless form of it, on the session's own connection: Redis judges the rights and the syntax. Then a goroutine does
// the proxy's part, because it looks at all clients, each of which has a lock of its own.

// A Asker is the client that asks. Its methods are called from the inquiry's goroutine. Requires no locks.
type Asker interface {
	// Ask sends commands to Redis on the session's own connection, and has next run with all their replies, one after the other, on a
	// goroutine of its own. If the session ends, next is not called.
	Ask(next func(replies []byte), commands ...[]byte)

	// After has f called when the inquiry has ended, however it ends. f requires no locks.
	After(f func())

	// Answer ends the inquiry with its reply. Only the first call counts.
	Answer(reply []byte)

	// AnswerLast is Answer for a client that has killed itself: the reply is the last that it gets.
	AnswerLast(reply []byte)
}

// An Inquiry is one such command.
type Inquiry struct {
	Asker
	Proxy  *shared.Proxy
	Client uint64   // that asks, by the number of CLIENT ID
	Args   [][]byte // behind the subcommand
	Size   int      // of the command, in bytes
}

// Start returns the command that Redis is to judge, and the function that goes on with its reply. raw is the client's command, sub its subcommand.
func (q *Inquiry) Start(sub string, raw []byte) (judged []byte, next func(reply []byte)) {
	switch sub {
	case "list":
		return raw, q.list
	case "kill":
		return clients.Harmless(q.Args), q.kill
	default:
		return raw, q.unblock
	}
}
