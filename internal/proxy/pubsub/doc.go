// Package pubsub keeps the subscriptions of one session in front of a cluster.
//
// A session has a subscriber at each server whose messages it needs: a connection of its own. The subscriber at the
// server of slot 0 receives channels and patterns, because all PUBLISH are sent there. Only the server of a key
// publishes events of the key. So a channel or pattern that may be for such events is received at all primaries. A
// shard channel is received at the server of its slot.
//
// When a server goes or a slot moves, the subscriptions move, and the client does not notice. Messages that were
// published in between are lost. The new subscription stands before the old one ends, if the old server is still there.
//
// Redis confirms each subscription, or refuses it. The proxy counts them, because the client's subscriptions are at
// several servers.
//
// The package does no I/O and has no lock. The subscriptions of a session are guarded by its lock, and know it as a
// Session.
package pubsub
