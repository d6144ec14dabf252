// Package upstream is the Redis side of lockproxy: the connections that ordinary commands, pinned sessions and
// scripts travel on. It is the only package that knows where Redis is.
//
//	session ──Append(raw, receiver, tag, n)──▶ stream ──take──▶ write loop ──▶ Redis
//	session ◀──Replies(tag, bytes, n)────────── stream ◀──feed── read loop ◀── Redis
//
// A stream is the state machine of one ordered connection, without I/O of its own: requests go in, the bytes to write
// come out, the bytes that were read go in, and each reply is handed to the receiver whose request it answers. Two kinds
// of connection are streams:
//
//   - a Lane is shared by sessions of one Identity and reconnects for ever; a laneSet is the lanes of one Identity and Driver;
//   - a Pin belongs to one session at a time (MULTI, BLPOP, SUBSCRIBE …), lives as long as its connection does, and
//     returns to a bounded pool when its session no longer needs it.
//
// # Goroutines
//
//   - Lane.run (one per lane): dials, serves, backs off. Owns the connection.
//   - readLoop and writeLoop (one each per live connection): the first owns the stream's reader state, the second its
//     write buffer. Both end before the stream is told that it is broken.
//   - Pin.run (one per pin) and one for each pin that is handed to a waiting session.
//   - Upstream.Run: refreshes the command table, asks for settings that matter here, and closes unused connections.
//   - answerDoor (at most one): asks whether a new connection needs credentials.
//   - reach.make (at most one): attempts to connect while Redis cannot be reached.
//
// # Invariants
//
//   - Replies reach receivers in the order in which their requests were appended.
//   - A request is written at most once. A request that was not written when a connection ends is reported as unsent, everything
//     else as sent; nothing is sent again.
//   - A stream never holds its mutex while it calls a Receiver. Lock order: session, then stream.
package upstream
