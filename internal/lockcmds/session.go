package lockcmds

import "lockproxy/internal/lockcmds/contract"

// The contract between the lock commands and a session has a package of its own, so that the tests of this package and those of sessions
// share one test double.
type (
	// Session is what the lock commands ask of one client connection.
	Session = contract.Session
	// Caller is the session that sends a command, and the facts about its client at that moment.
	Caller = contract.Caller
	// ClientInfo names a client connection for people.
	ClientInfo = contract.ClientInfo
	// Call is one script on a session's own connection to Redis.
	Call = contract.Call
)

// Errors that a Call's Done may be given instead of an answer.
var (
	ErrUnsent  = contract.ErrUnsent
	ErrInDoubt = contract.ErrInDoubt
)
