// Package lockcmds is the lock commands: LOCK, TRYLOCK, FAIRLOCK, UNLOCK, EXTENDLOCK, LOCKINFO, LOCKLIST,
// FORCEUNLOCK. The locks live in Redis in the layout of Redisson, so its clients and ours exclude each other.
//
//	session ──Parse──► Engine.Start ──┬─ LOCK, TRYLOCK, FAIRLOCK ──► acquire.go ──┐
//	                                  ├─ UNLOCK ───────────────────► release.go ──┤
//	                                  ├─ EXTENDLOCK ───────────────► extend.go ───┤
//	watchdog, messages, hang-ups ─────┼───────────────────────────────────────────┴─► step ──► table.Table ──► effects
//	                                  └─ LOCKINFO, LOCKLIST, FORCEUNLOCK                    leases, jobs, timers, replies
//
// The table decides (package table). The keeper of an engine (keeper.go) has the only mutex of its locks, under which
// step tells the table of an event and carries out the effects (effects.go). It does what is to be done whatever clients
// send: renewals, losses, places in Redis, rollbacks. It knows no commands but those that are on their way. Each command
// is one script on the session's own lane or pin (request.go). An UNLOCK with waiters here is one script that releases
// and grants to the next: offer has its part for the waiters. A loss ends the hold, and then wakes the waiters of the
// lock.
//
// An Engine serves all sessions of one identity (ACL user, password, db), and has all commands. A command runs on its
// session's own connection, with that session's rights and in its place among the session's other commands. Work that belongs to no command in flight runs on the engine's own connection: attempts of
// waiters, renewals, and rollbacks.
//
// Goroutines: Run's link (subscriptions) and watchdog (scheduler). All other work is done by timers and by jobs on the
// pool, each of few round trips: a batch of renewals that Redis refuses is divided until the refused ones are alone.
//
// keeper.mu guards the table and all sessions, holds and waiters. The watchdog, the losses of a session, jobs and
// subscriptions are used under it. No session method and no call to Redis runs under it. The functions of
// Options.Events and the observers may be called under it, so they do not block. Granted, Attempt and Renewed are
// called without it.
//
// Invariants, besides those of holds.go, acquire.go and package table:
//   - A session's call is sent once, unless Redis refuses it. If its answer is lost, the session ends
//     (contract.Unanswered), and a rollback settles what the call may have done.
package lockcmds
