// Package upstream is the Redis side of lockproxy: the connections that ordinary commands, pinned sessions and
// scripts travel on. Only this package knows the address of Redis.
//
// Each connection is a stream (package stream): the sessions append requests to it, and get the replies. There are two kinds:
//
//   - a Lane is shared by sessions of one Identity and reconnects until it is closed; a laneSet is the lanes of one Identity and Driver;
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
package upstream
