// Package stream is the state machine of one ordered connection to Redis: requests go in, the bytes to write come out,
// the bytes that were read go in, and each reply is handed to the receiver whose request it answers. Serve moves the
// bytes by goroutines; without it an event loop does. The machine does no I/O, but for the direct write in send.go.
//
//	session ──Append(raw, receiver, tag, n)──▶ Stream ──Take──▶ write loop ──▶ Redis
//	session ◀──Replies(tag, bytes, n)────────── Stream ◀──Feed── read loop ◀── Redis
//
// # Invariants
//
//   - Replies reach receivers in the order in which their requests were appended.
//   - A request is written once at most. When a connection ends, the requests that were not taken, and those of a batch
//     of which no byte was written, wait for the next connection, if one follows at once and their receivers want that
//     (Receiver.Keeps). Else they are reported as unsent, and all others as sent.
//   - A stream never holds its mutex while it calls a Receiver or an Observer. Lock order: session, then stream.
//
// # Goroutines
//
// Serve starts two, and waits for them: one writes, and one closes the connection when it is asked to. Its caller
// reads. One goroutine at a time takes (the writer, or one that calls Send while the writer sleeps), and
// one feeds (the reader). Append may be called from any. When both have returned, the keeper of the connection ends it
// with Reconnect, Rest or Refuse.
package stream
