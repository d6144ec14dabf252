// Package direct writes to sockets for callers that may not wait: it writes the bytes that the socket takes at once, and returns their
// number.
package direct
