// Package sim plays whole histories of locks in virtual time, and checks after each step what must always be true.
//
// Two or three real lock engines, each as a proxy of its own, run on one event loop against a model of Redis. The model
// is written in Go and executes the lock scripts themselves, in an interpreter of Lua. No goroutine is scheduled and no
// clock of the machine is read, so a seed decides a history to the last step. Faults are part of it: connections are
// cut, requests run late, sessions and proxies die, Redis's clock is stepped, keys are evicted, everything is flushed,
// messages come twice and late.
//
//	plan (seed) ──► commands, faults ──► sessions ──► engines ──► connections ──► model of Redis ──► scripts
//	                                         ▲ one event loop, virtual time ▲
//	                                         └──── checks after each step ──┘
//
// A part of the histories has a primary with replicas, another part two shards of a cluster. A primary has a log of
// what it writes, and a replica executes a prefix of it, so a failover loses the rest of the log and nothing else.
// Servers are killed, stopped, cut off from all but one proxy, replaced in agreement or without it, and hash slots move
// key by key. The proxies learn of it one after the other.
//
// What a proxy does below the engine (redislink.Cluster, the sessions' requests, the watcher of Sentinels) is modelled,
// not run: it follows MOVED and ASK, waits for a moment, subscribes anew, and aborts connections to a server that does
// not count any more.
//
// The rules about servers are in loss_test.go. A grant that all replicas had is never lost. Another one is lost only
// with a primary that was replaced without agreement, and its client learns of that by the next renewal. A change in
// agreement loses nothing, and no waiter.
//
// The rules in promise_test.go are that a lease of any kind goes on until the end of which its client was told,
// whatever other calls and rollbacks do meanwhile, and that the lease of a client that has gone does. The rule in
// owners_test.go is about owners that several sessions are: copies count nothing, and a rollback takes no hold of
// another session.
//
// The rules in rules_test.go are about all locks: who may hold one beside whom, whose lease lasts, that no script takes a
// part from another owner, that no waiter is forgotten, and that clients, engines and Redis tell the same. A quarter of
// the histories has a lock that is held exclusively and shared. Whom a shared holder overtakes is in shared_test.go.
//
// A fifth of the histories is about a lock of permits. limit_test.go says what scripts may do to it: how many hold it,
// and that no script takes another permit than the one that is meant. In a third of these histories some commands ask for
// the same lock exclusively or shared, and no holder may be beside one of another kind. Each server is judged by itself,
// also one that does not count any more. Permits whose keys have moved in part when their new primary is lost end early.
//
// Most histories are short: three to twelve acquires within two seconds. Those without faults on one server are long,
// with up to 29 acquires within five seconds. Planted bugs are found soonest so.
//
// A seed that breaks a rule is minimised and printed as lines that a person can read. All of it is in tests.
package sim
