// Package proxy is the client side of lockproxy: listeners, sessions, and what happens to each command.
//
//	client ─bytes─▶ conn or loop  ─▶ Session.Feed ─▶ resp.Guard ─▶ route, by the policy table:
//	                                                   shared   ─▶ lane    (many sessions, one connection)
//	                                                   pinned   ─▶ pin     (MULTI, BLPOP, SUBSCRIBE …)
//	                                                   local    ─▶ answered here (CLIENT SETNAME, QUIT …)
//	                                                   about    ─▶ an inquiry into all clients (CLIENT LIST …)
//	                                                   lock     ─▶ lockcmds ─▶ script on the same lane or pin
//	client ◀─bytes─ host.Flush ◀─ Session.out ◀─ Replies(bytes, n) from the lane's or pin's reader
//
// A Session is one client connection as a state machine without I/O: events go in (bytes of the client, replies, a lock's
// result, a hang-up), bytes to send come out. Two engines can drive it: a conn moves the bytes between one
// Session and its socket with goroutines, a loop those of many with epoll.
//
// # Order
//
// A session uses one upstream connection at a time, its lane or its pin, and both answer in the order of asking. So a
// session needs only one number, pending, to keep its replies in order: whatever must not overtake (an answer of our own,
// a move between lane and pin, a change of identity) waits until pending is 0. A session that waits is not parsed further,
// but it is still read, so that a hang-up is seen.
//
// # Goroutines
//
//   - redcon's accept loop, one per listener, and one of redcon's per client until its first command arrives, which
//     also reads the PROXY header and the TLS handshake;
//   - loop.run, on Linux: one event loop for two processors, which moves the bytes of its plain clients (remote) and of
//     their lanes (wire); such clients have no goroutine of their own;
//   - conn.readLoop, one per client that no loop serves: reads the socket and feeds the session; it ends with the connection;
//   - conn.drainOutput, only while a client does not take its replies: writes what a first, non-blocking write left over;
//   - one for each CLIENT LIST, KILL or UNBLOCK, from Redis's answer to its own; it looks at all clients;
//   - env.tick, which keeps the clock for idle times;
//   - the readers of package upstream and the workers of package lockcmds call into sessions and never block there.
//
// # Locks
//
// A session's mutex guards its fields, never I/O. Order: Session.mu, then the mutexes of lockcmds, then those of upstream and of
// the directory of clients. No goroutine holds two sessions' mutexes: work on another session is done from Session.later or
// from a goroutine of its own.
package proxy
