// Package resp is the bytes of the Redis protocol: it finds the end of a request or a reply, and builds the proxy's own
// replies. It does no I/O, starts no goroutine and imports nothing else of this module.
//
//	client bytes ─▶ Guard.Next ─▶ Frame (one whole, checked command) ─▶ Split ─▶ arguments
//	                    └───────▶ an error (answer it, close this client)
//
//	Redis bytes  ─▶ Scanner.Scan ─▶ "this reply ends here", bytes untouched ─▶ client
//	                    └──────────▶ Decode ─▶ Value (only for the few replies the proxy reads itself)
//
// # Requests
//
// The Guard stands before redcon's parser, which must never see an unchecked byte: redcon overflows on
// "$9223372036854775807" and panics, has no limit on counts and lengths, parses a partial command from its start on
// every read, refuses "*0" where Redis ignores it, and does not know \xHH in inline commands. The Guard follows
// networking.c of Redis 7.0 to the letter, including what Redis does not check:
//
//   - the byte behind the '\r' of a header may be anything, and so may the two bytes behind a bulk. Redis skips them
//     unseen; redcon refuses them. The Guard writes the "\r\n" that belongs there into the caller's buffer;
//   - a header or an inline line that contains a zero byte never ends (Redis searches with strchr), so the client
//     waits until it is over the limit for lines;
//   - a wrong type byte is reported once its whole line is there, not before.
//
// It differs in one limit: Redis 7.0 takes up to 2,147,483,647 arguments, the Guard 1,048,576 by default, as Redis
// before 7.0 did. And where Redis accepts or refuses an overlong line depending on how the bytes were cut into
// reads, the Guard always refuses it.
//
// # Replies
//
// The Scanner covers RESP2 and RESP3 including attributes and pushes, without the streamed types, which neither Redis
// nor Valkey sends. It keeps a count of outstanding elements instead of a stack, so nesting costs nothing: a Lua script
// may return tables thousands of levels deep before Redis stops it. Only counts and lengths must be numbers. A scalar's
// line is text up to its end. Redis passes on a script's big number such as "(abc" unchecked, and the reply to one
// client must not end a connection that other clients share.
//
// # Invariants
//
//   - A Frame from Next parses in redcon without panic or error, to the same arguments that Redis would see.
//   - Next and Scan give the same results however the bytes are cut, and look at no byte twice (a bulk's bytes: never).
//   - No heap allocation per array-form command, per inline command after the first, or per reply.
package resp
