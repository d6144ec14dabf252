package lockcmds

import (
	"sync"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
)

// This file counts and logs the acquires of a connection that holds the lock already, and names no OWNER.
//
// Such an acquire is a re-entry where the connection is the owner. A library that shares connections between threads or
// tasks sends two tasks' acquires on one connection: then both tasks have the lock. With ReentryAuto the connection of
// a library that has announced itself is no owner. With ReentryConnection it is one, and the log names it.

// Reentries is shared by all lock engines of a proxy. Its fields do not change after the first use; its methods may be
// called from any goroutine, and nil counts and logs nothing.
type Reentries struct {
	Counted func()      // of each re-entry; nil: nothing counts them
	Logger  *zap.Logger // nil: silent

	mu    sync.Mutex
	named map[logged]struct{} // clients that the log has named
}

// A client chooses its names, so the number and the length of those that are remembered are limited.
const (
	mostNames   = 256
	longestName = 64 // bytes
)

// logged is an event of which the log has named a client.
type logged struct{ event, client string }

// reentrant is the client of a connection that acquires.
type reentrant struct {
	contract.ClientInfo
	Library string // as in contract.Caller
}

// Note counts a re-entry, and logs the first one of each client name if the client's library has announced itself. A
// client without a name goes by the name of its library.
func (r *Reentries) Note(c reentrant, key string) {
	if r == nil {
		return
	}
	if r.Counted != nil {
		r.Counted()
	}
	if !r.logs(c, "re-entry") {
		return
	}
	r.Logger.Warn("a connection acquires a lock that it holds already: "+
		"threads or tasks that share a connection are one owner unless each names an OWNER",
		zap.String("library", clipped(c.Library)), zap.String("name", clipped(c.Name)),
		zap.String("client", c.Addr), zap.String("key", clipped(key)))
}

// NoteEach logs the first connection of each client name, as Note does, whose acquires without OWNER have owners of
// their own.
func (r *Reentries) NoteEach(c reentrant) {
	if r == nil || !r.logs(c, "each") {
		return
	}
	r.Logger.Info("the connections of a client library are no owners of locks: each acquire without OWNER is one",
		zap.String("library", clipped(c.Library)), zap.String("name", clipped(c.Name)), zap.String("client", c.Addr),
		zap.String("reentry", string(ReentryOwner)))
}

// NoteNotHeld logs the first release of each client name, as Note does, that comes from a connection without the lock:
// the lock may be another connection's of the same pool, whose idle connection goes on to hold it.
func (r *Reentries) NoteNotHeld(c reentrant, key string) {
	if r == nil || !r.logs(c, "release") {
		return
	}
	r.Logger.Warn("a connection releases a lock that it does not hold: "+
		"a pool may release on another connection if it names the FENCE of the grant, or an OWNER",
		zap.String("library", clipped(c.Library)), zap.String("name", clipped(c.Name)),
		zap.String("client", c.Addr), zap.String("key", clipped(key)))
}

// NoteBlocks logs the first acquire of each client name that has waited for a while for a hold of its own connection.
func (r *Reentries) NoteBlocks(c reentrant, key string) {
	if r == nil || !r.first(c, "wait") {
		return
	}
	r.Logger.Warn("a LOCK waits for a lock that its own connection has taken: "+
		"a LOCK blocks its connection, as BLPOP does, so give locks a connection of their own",
		zap.String("library", clipped(c.Library)), zap.String("name", clipped(c.Name)),
		zap.String("client", c.Addr), zap.String("key", clipped(key)))
}

// logs reports whether the client's library has announced itself, and its name is a new one for that event.
func (r *Reentries) logs(c reentrant, event string) bool {
	return c.Library != "" && r.first(c, event)
}

// first reports whether the client's name, or else its library, is a new one for that event.
func (r *Reentries) first(c reentrant, event string) bool {
	if r.Logger == nil {
		return false
	}
	name := logged{event, "library " + clipped(c.Library)}
	if c.Name != "" {
		name.client = "name " + clipped(c.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.named[name]; known || len(r.named) == mostNames {
		return false
	}
	if r.named == nil {
		r.named = map[logged]struct{}{}
	}
	r.named[name] = struct{}{}
	return true
}

// clipped is a client's text, no longer than the log and the memory of names allow.
func clipped(s string) string { return s[:min(len(s), longestName)] }
