// Package cluster is the way of a session's commands to the servers of a Redis Cluster. It does no I/O, and sees its
// session as a Host.
//
//	session ─Place, Send, Script─▶ Route ─▶ Parcel.Post ─Host.Transmit─▶ a lane to the server
//	session ◀─────the handler───── Parcel ◀─Take, Kept──────────────── replies, and what could not be sent
//
//	route.go          finds the server of a command, and the lane to it
//	view.go           the view by which commands are placed
//	parcel.go         a command on its way, which handles its own reply
//	pause.go          sends again what a server has refused for another server's sake
//	scatter.go        commands for several servers
//	transaction.go    transactions, which are sent as a whole
//	pin.go            commands on the session's own connection, with guarded.go, subscriptions.go
//
// Commands about one key take effect in the order sent (pause.go). The others keep no order among each other, but for
// those by which other clients learn of the session's work, and those that concern all that is sent: lock commands,
// transactions and whatever needs a pin, PUBLISH, changes of identity, and commands of several keys. Each is sent when
// everything before it has been answered, and is answered before anything behind it is sent.
//
// Everything in it requires the lock of the session.
package cluster
