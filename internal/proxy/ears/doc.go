// Package ears keeps the subscriptions of one session in front of a cluster.
//
// A session has an ear at each server whose messages it needs: a connection of its own. The ear at the server of slot 0 hears channels and patterns,
// because all PUBLISH are sent there. Only the server of a key publishes events of the key. So a channel or pattern that may be for such events is received
// at all primaries. A shard channel is received at the server of its slot.
//
// When a server goes or a slot moves, the ears move, and the client does not notice. Messages that were published in between are lost. The new
// subscription stands before the old one ends, if the old server is still there.
//
// Redis confirms each subscription, or refuses it. The proxy counts them, because the client's subscriptions are at several servers.
//
// The package does no I/O and has no lock. The ears of a session are guarded by its lock, and know it as a Session.
package ears
