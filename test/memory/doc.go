// Package memory tests that the proxy holds a bounded part of what clients send and do not read, streams large commands,
// and gives everything back when a client ends, whatever it waits for.
package memory
