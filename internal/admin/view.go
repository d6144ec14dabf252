package admin

import (
	"context"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy"
)

// Source is where the tables come from. All fields are required.
type Source struct {
	UUID       string // the proxy's part in the names of owners
	EachLock   func(f func(proxy.SeenLock))
	EachClient func(f func(proxy.ClientStatus))
	Describe   func(ctx context.Context, l *proxy.SeenLock) (script.Described, error) // asks Redis
}

// newSource is the source of a proxy's tables.
func newSource(p *proxy.Server) *Source {
	return &Source{
		UUID: p.Stats().UUID, EachLock: p.EachLock, EachClient: p.EachClient,
		Describe: func(ctx context.Context, l *proxy.SeenLock) (script.Described, error) { return l.Describe(ctx) },
	}
}

// longestShown is how much of a name a table shows, in bytes. Clients choose names of any length, and JSON makes them
// up to six times as long.
const longestShown = 1024

// shown is a name as a table shows it.
func shown(name string) string { return logging.Excerpt(name, longestShown) }
