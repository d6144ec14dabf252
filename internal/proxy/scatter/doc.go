// Package scatter divides a command among the servers of a cluster, and joins their replies to the reply that one
// server would have given. It does no I/O.
//
//	Split       MGET, MSET, DEL, UNLINK, EXISTS, TOUCH with keys of several slots: a part for each slot
//	Everywhere  KEYS, DBSIZE, FLUSHALL and the like: the same command at every primary
//	Cursor      SCAN: one server after the other, with a cursor that says which
//
// The parts are not one step: other clients may see some of them done and others not.
package scatter
