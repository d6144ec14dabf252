// Package transparency tests that a client sees of the proxy what it would see of Redis. A script is run on a direct
// connection and through the proxy, and the bytes are compared: forms of requests, reply modes, transactions,
// subscriptions, blocking commands, identities. Other tests have clients that share a lane or a pin, of which none may
// see anything of another. The differential test does the same with random commands.
package transparency
