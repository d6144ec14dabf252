// Package table is the table of the locks that clients of one lock engine hold and wait for: a state machine without
// I/O or clock. Events go in as calls, effects come out, and the lock engine carries the effects out.
//
//	                     busy                  its turn               granted
//	an acquire is asked ──────► Join ──► Queue ────────► Attempt ──► Answered ──► Finish ──► Record ───► Hold
//	                                       ▲                                        ▲                    │
//	  Published, Wake, Offer, TimerDue ────┘      granted, or handed over ──────────┘                    │
//	  (a message, a loss, a release here,                                                                ▼
//	   the end of the holder's lease)         Release ──► Redis ──► Released: Forget, the lease ends, or Resume
//	                                          Extended, Deepening ──► Pause … Resume, Continue, Shorten
//	                                          Lost, EndPart ──► Forget, Tell
//
// A lock (lock.go) is its holders and its wait queue. Redis decides about every lock. The table knows what Redis has
// said, and the instant before the command was sent that Redis answered.
//
// A Kind (kind.go) is the rules of one kind of lock: whether a holder acquires again by the same grant, who may hold
// the lock beside whom, and who may go next. Whether a waiter is a plain or a fair one is no matter of the kind.
//
// A Table is two parts that do not know each other: holders and waits. Both find a lock by its name, and add to one list
// of effects.
//
// The holders (hold.go, acquire.go, release.go, answers.go): a Hold is a lock that sessions of this proxy hold for one owner, by
// one grant. It is found by the fence of the grant, or by the owner. Its lease is watched from Track to Forget. The
// lossBook (suspects.go) decides which ended holds are told of as losses.
//
// The waiters (queue.go, waiter.go, attempt.go, places.go): a Queue is the waiters of one lock. Fair waiters stand in
// the queue in Redis, each by its own name, and are woken by that name. The plain ones are a crowd with one place
// there, and only the first of them asks. The queues share the channels (channels.go), the departures (leave.go: places
// that leave the queue in Redis together) and the backlog (slices.go: work for many waiters). Each queue has a reaper
// (reaper.go), which looks for a stale waiter at the head of a free lock's queue.
//
// The caller serializes all calls, but those of Losses, which several tables share (losses.go). It carries out the
// effects in their order, and may do so later. An answer for a queue that has ended finds no waiter, and ends the work
// of the reaper.
//
// Invariants of holds:
//   - A hold that the table finds has a session that holds the lock, or whose release or acquire is on its way. So a
//     lease is not renewed for sessions that have released all their holds.
//   - Each Pause of a lease is ended by exactly one Resume or Continue, or by the Forget of its hold.
//   - An answer to an older command changes neither the count nor the lease that an answer to a later one has set.
//   - If the answer to a command is lost that sets the lease, the shorter of the old and the new lease counts.
//   - A session is told of a loss once: by Tell, or by the reply LostLease.
//   - No loss is told while releases are on their way that may have ended the hold.
//
// Invariants of waiters:
//   - Each waiter that has joined gets one Finish, and no effect after it.
//   - A waiter has at most one attempt on its way. If it is woken meanwhile, another attempt follows.
//   - No attempt begins before the waiter's subscriptions are confirmed. The confirmation causes one. If the waiter
//     leaves before, the next one asks.
//   - Plain waiters ask in the order in which they joined, and so do fair ones, but for those that are woken by name.
//   - Each event costs O(1), or O(1) for each waiter that it concerns. Work for many waiters is done in slices:
//     GoOn.
package table
