// Package session is one client connection as a state machine without I/O, and what happens to each command.
//
//	client ─bytes─▶ engine        ─▶ Session.Feed ─▶ resp.Guard ─▶ route, by the policy table:
//	                                                   shared   ─▶ lane    (many sessions, one connection)
//	                                                   pinned   ─▶ pin     (MULTI, BLPOP, SUBSCRIBE …)
//	                                                   local    ─▶ kept here (CLIENT SETNAME, QUIT …)
//	                                                   about    ─▶ an inquiry into all clients (CLIENT LIST …)
//	                                                   lock     ─▶ lockcmds ─▶ script on the same lane or pin
//	client ◀─bytes─ engine ◀─ Session.NextWrite ◀─ Replies(bytes, n) from the lane's or pin's reader
//
// Events go in (bytes of the client, replies, a lock's result, a hang-up), bytes to send come out. A session knows the
// engine that moves its bytes as an engine.Client.
//
// # Order
//
// Each command has a slot for its reply, in the order of the commands (package reply). A lane, a pin, a lock engine or
// the session itself may answer it, at any time: replies leave in the order of the slots. A run of ordinary commands
// has one slot.
//
// Commands take effect in the order sent because a session uses one upstream connection at a time, its lane or its pin.
// A move between lane and pin, or a change of identity, waits until no reply is due. A session that waits is not parsed
// further, but it is still read, so that a hang-up is seen.
//
// # Route
//
// A session reaches Redis by a route (routes.go): to one server (single), which decides nothing, or to those of a
// cluster (package cluster, which sees the session by host.go).
//
// # Goroutines
//
//   - the engine's call Feed, NextWrite and the like;
//   - the readers of package upstream and the workers of package lockcmds call into sessions and never block there, but
//     for the reader of a pin whose bytes pass unread: it waits for the client (pinned.Flush);
//   - one for each CLIENT LIST, KILL or UNBLOCK, from Redis's answer to its own; it looks at all clients;
//   - one for a long command that is divided among servers, or whose long replies are joined (Aside);
//   - those of timers: the first command, a timeout, a drain.
//
// # Locks
//
// A session's mutex guards its fields, never I/O. Order: Session.mu, then the mutexes of lockcmds, then those of
// upstream. No goroutine holds two sessions' mutexes: work on another session is done from Session.afterUnlock or from
// a goroutine of its own.
package session
