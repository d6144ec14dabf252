// Package direct writes to sockets from where nobody may wait: it writes what the socket takes at once, and says how much that was.
package direct
