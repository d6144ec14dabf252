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
//	watchdog ──► renew (batches) ──► lost? ──► push, channel, -LOSTLEASE on the next UNLOCK
//
// An Engine serves all sessions of one identity (ACL user, password, db), and the holds of former ones. A command runs on its session's own
// connection, with that session's rights and in its place among the session's other commands. Work that belongs to no command in
// flight (waiters' attempts, renewals, clean-up, doubts) runs on the engine's own connection.
//
// Goroutines: Run's link (subscriptions) and watchdog (scheduler). All else is jobs on the pool, each at most one round
// trip long, and timers. Waiters are data.
//
// Locks: a session's lock before Engine.mu before the watchdog's and the subscriptions'. No session method, Redis call or callback
// runs under Engine.mu.
//
// Invariants:
//   - Every answer of Redis that grants a lock ends in exactly one of: the client's reply with the lease watched, or a
//     release.
//   - A waiter is answered exactly once, or its session has ended.
//   - Each deciding attempt of a waiter begins after the confirmation of its subscription; every message, reconnect
//     and end of the holder's lease after that causes another. A waiter that joins a queue with others needs no attempt of its
//     own: the first in the queue has made it.
//   - A renewal and a re-entry or extension of one hold do not overlap: the lease is paused around them. A release waits for no
//     renewal: it may find the lock released, and is then refused by owner and fence.
//   - An acquire whose outcome is in doubt is never repeated before Redis was asked who the owner is.
//   - GRACE takes from an explicit owner only what the session that ends has acquired.
//   - While holds of an owner are being given back on the engine's own connection, the owner's commands wait, for a second at
//     most: otherwise their order would be unknown.
//   - Null means that Redis has said "not you", or that nothing is left of the grant.
//   - A grant that a session was told to have lost is never told to it as granted again. The rest of it in Redis is given back.
//     Of an explicit owner only the holds that sessions here have acquired, and that an answer shows, are given back.
//   - Neither a renewal nor a release nor a give-back leaves an owner a shorter lease than it was promised.
package lockcmds
