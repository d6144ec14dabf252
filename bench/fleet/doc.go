// Package fleet starts the servers that are compared, on free ports of the loopback interface, and reads from /proc
// what they cost.
//
//	Start ──► redis-server ◄── twemproxy, haproxy, lockproxy
//	          or a primary with replicas and Sentinels, or a cluster ◄── envoy, lockproxy
//	Close ──► ends them all, by process id
//
// The kernel ends the processes with this one, even if it is killed. For that each is started by a goroutine of its own
// that keeps its thread until the process has ended, since Linux ties the life of a child to the thread that made it.
//
// Linux only.
package fleet
