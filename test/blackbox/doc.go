// Package blackbox tests a whole proxy as its clients see it. The scripts in testdata are played directly, through the
// proxy and through the proxy over TLS, and the bytes are compared; a script that says the replies itself is played
// through the proxy alone. What a script cannot say is a test in Go: ends of connections, limits, memory, the log,
// listeners, and random commands.
package blackbox
