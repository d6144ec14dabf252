// Package idchange reads AUTH, HELLO and SELECT: what each does to the identity of its connection if Redis accepts it, and
// whether it may be asked on a connection that others share. It does no I/O.
package idchange
