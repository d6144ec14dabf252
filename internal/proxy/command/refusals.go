package command

import "github.com/lockproxy/lockproxy/internal/resp"

// NotInTx refuses a command that is not possible in a transaction, and LockInTx a lock command. Of subscriptions, any
// number of frames would stand in the place of one element of the reply to EXEC.
var (
	NotInTx  = resp.AppendError(nil, resp.Err, "Command not allowed inside a transaction")
	LockInTx = resp.AppendError(nil, resp.Err, "Command not allowed inside a transaction: "+
		"send lock commands before MULTI or after EXEC, or on another connection")
	NoSubscriptionsInTx = resp.AppendError(nil, resp.Err, "subscriptions are not possible inside a transaction")
)

// SubscriberRefusal is the reply to a command that a subscriber may not send in RESP2.
func SubscriberRefusal(verb string) []byte {
	return resp.AppendError(nil, resp.Err, "Can't execute '"+verb+
		"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}
