// Package lockcmds is the lock commands: LOCK, TRYLOCK, FAIRLOCK, UNLOCK, EXTENDLOCK, LOCKINFO, LOCKLIST, FORCEUNLOCK.
// The locks live in Redis in the layout of Redisson, so its clients and ours exclude each other.
//
//	session ──Parse──► Engine.Start ──► one script on the session's own lane or pin ──► Done ──► reply
//	                        │ others wait already      │ busy, and it may wait
//	                        └──────────────────────────┤
//	                                                   ▼
//	                      package queue: one wait queue per lock ◄── Redis: "released" (package redislink)
//	                                                   │ effects ◄── the holder's TTL is over
//	                                                   ▼
//	                      one script on the engine's own connection (a job on the pool) ──► Reply
//
//	UNLOCK with local waiters: one script releases and grants to the next, and its answer feeds both clients.
//	answers ──► package ledger: which session holds what ──► effects: leases watched, losses told
//	watchdog ──► calls.Own.Renew (batches) ──► lost? ──► push, channel, -LOSTLEASE on the next UNLOCK
//
// An Engine serves all sessions of one identity (ACL user, password, db), and the holds of former ones. A command runs on its
// session's own connection, with that session's rights and in its place among the session's other commands. Work that belongs to no
// command in flight runs on the engine's own connection: attempts of waiters, renewals, rollbacks, and calls that are sent again
// (package calls).
//
// Goroutines: Run's link (subscriptions) and watchdog (scheduler). All other work is done by timers and by jobs on the pool, each at
// most one round trip long. Waiters are data.
//
// Mutexes: a session's, then Engine.mu, then those of the watchdog and the subscriptions (docs/LOCKORDER.md). No session method, Redis
// call or callback runs under Engine.mu.
//
// Invariants:
//   - A script that runs twice leaves the state that it leaves when it runs once. Every count in a lock's hash has one writer, which
//     writes it as an absolute number, guarded by the fence that it knows and by the number of the request.
//   - Every grant ends in the client's reply with the lease watched, or in a rollback.
//   - A waiter gets exactly one reply, unless its session has ended.
//   - A deciding attempt of a waiter begins after the confirmation of its subscription. Every later message, reconnect and end of the
//     holder's lease causes another attempt. A waiter that joins other waiters needs no attempt of its own: the first one has made it.
//   - A renewal does not overlap with a re-entry or extension that may shorten the lease: the lease is paused around these. A release
//     waits for no renewal: Redis refuses a renewal behind it by owner and fence.
//   - A call whose answer is lost is sent again until Redis answers, for five seconds. Only calls that could end a later grant are not.
//   - GRACE releases exactly the holds of the session that ends.
//   - A null reply means that Redis refused, or that the grant has been rolled back.
//   - After a session was told that it lost a grant, it never gets the same fence again.
//   - No call leaves an owner a shorter lease than the owner was promised.
package lockcmds
