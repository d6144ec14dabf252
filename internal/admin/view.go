package admin

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy"
)

// This file makes the tables that operators see: locks and clients, searched and bounded. The page sorts them.
//
// A table is made from all locks, or all clients, one after the other. None of them is held while another one is looked
// at, and a table keeps a bounded number of rows in memory. The time grows with their number, so a goroutine of an
// operator makes a table, and no event loop.
//
// Goroutines: a few for each table of locks, which ask Redis for holders. They end before the table is returned.

// Source is where the tables come from. All fields are required.
type Source struct {
	UUID       string // the proxy's part in the names of owners
	EachLock   func(f func(proxy.SeenLock))
	EachClient func(f func(proxy.ClientStatus))
	Holder     func(ctx context.Context, l *proxy.SeenLock) (script.Holder, error) // asks Redis
}

// newSource is the source of a proxy's tables.
func newSource(p *proxy.Server) *Source {
	return &Source{
		UUID: p.Stats().UUID, EachLock: p.EachLock, EachClient: p.EachClient,
		Holder: func(ctx context.Context, l *proxy.SeenLock) (script.Holder, error) { return l.Holder(ctx) },
	}
}

// longestShown is how much of a name a table shows, in bytes. Clients choose names of any length, and JSON makes them
// up to six times as long.
const longestShown = 1024

// shown is a name as a table shows it.
func shown(name string) string { return logging.Excerpt(name, longestShown) }
