// Package transparency tests that a client sees of the proxy what it would see of Redis. The scripts in testdata are
// played directly, through the proxy and through the proxy over TLS, and the bytes are compared. What a script cannot
// say is a test in Go: ends of connections, limits, and random commands.
package transparency
