// Package idchange reads AUTH, HELLO and SELECT. It says which identity each leads to if Redis accepts it, and whether a shared
// connection may carry it. It does no I/O.
package idchange
