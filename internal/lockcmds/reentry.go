package lockcmds

import (
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
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

// logged is an entry of the log about a client.
type logged struct{ text, client string }

// Note counts a re-entry, and logs the first one of each client name if the client's library has announced itself. A
// client without a name goes by the name of its library.
func (r *Reentries) Note(c table.Client, library, key string) {
	if r != nil && r.Counted != nil {
		r.Counted()
	}
	if library != "" {
		r.log(zap.WarnLevel, c, library, "a connection acquires a lock that it holds already: "+
			"threads or tasks that share a connection are one owner unless each names an OWNER",
			zap.String("key", clipped(key)))
	}
}

// NoteEach logs the first connection of each client name, as Note does, whose acquires without OWNER have owners of
// their own.
func (r *Reentries) NoteEach(c table.Client, library string) {
	if library != "" {
		r.log(zap.InfoLevel, c, library, "the connections of a client library are no owners of locks: "+
			"each acquire without OWNER is one", zap.String("reentry", string(ReentryOwner)))
	}
}

// NoteNotHeld logs the first release of each client name, as Note does, that comes from a connection without the lock:
// the lock may be another connection's of the same pool, whose idle connection goes on to hold it.
func (r *Reentries) NoteNotHeld(c table.Client, library, key string) {
	if library != "" {
		r.log(zap.WarnLevel, c, library, "a connection releases a lock that it does not hold: "+
			"a pool may release on another connection if it names the FENCE of the grant, or an OWNER",
			zap.String("key", clipped(key)))
	}
}

// NoteBlocks logs the first acquire of each client name that has waited for a while for a hold of its own connection.
func (r *Reentries) NoteBlocks(c table.Client, library, key string) {
	r.log(zap.WarnLevel, c, library, "a LOCK waits for a lock that its own connection has taken: "+
		"a LOCK blocks its connection, as BLPOP does, so give locks a connection of their own",
		zap.String("key", clipped(key)))
}

// log writes an entry, unless it has been written about the client's name, or about its library if it has none.
func (r *Reentries) log(level zapcore.Level, c table.Client, library, text string, field zap.Field) {
	if r == nil || r.Logger == nil {
		return
	}
	entry := logged{text, "library " + clipped(library)}
	if c.Name != "" {
		entry.client = "name " + clipped(c.Name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.named[entry]; known || len(r.named) == mostNames {
		return
	}
	if r.named == nil {
		r.named = map[logged]struct{}{}
	}
	r.named[entry] = struct{}{}
	r.Logger.Log(level, text, zap.String("library", clipped(library)), zap.String("name", clipped(c.Name)),
		zap.String("client", c.Addr), field)
}

// clipped is a client's text, no longer than the log and the memory of names allow.
func clipped(s string) string { return s[:min(len(s), longestName)] }
