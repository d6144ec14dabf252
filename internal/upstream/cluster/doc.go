// Package cluster reads what the nodes of a Redis Cluster say of it, without I/O: the View of all slots and their nodes, and the errors by which a
// node sends a command elsewhere (Refusal).
//
//	CLUSTER NODES ──► Told ──Book: addresses for clients──► View        CLUSTER SLOTS ──► Told ──► Book, when a server is new
//
// A View never changes. A node's answer may be old. Newest joins two views by the epochs that the nodes count, so that no slot returns to an owner that it
// had before.
package cluster
