package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy"
)

// Source is where the tables come from. All fields are required.
type Source struct {
	UUID       string // the proxy's part in the names of owners
	EachLock   func(f func(proxy.SeenLock))
	EachClient func(f func(proxy.ClientStatus))
	HotLocks   func(n int) []proxy.HotLock
	Describe   func(ctx context.Context, l *proxy.SeenLock) (script.Described, error) // asks Redis
}

// newSource is the source of a proxy's tables.
func newSource(p *proxy.Server) *Source {
	return &Source{
		UUID: p.Stats().UUID, EachLock: p.EachLock, EachClient: p.EachClient,
		HotLocks: p.HotLocks,
		Describe: func(ctx context.Context, l *proxy.SeenLock) (script.Described, error) { return l.Describe(ctx) },
	}
}

// longestShown is how much of a name a table shows, in bytes. Clients choose names of any length, and JSON makes them
// up to six times as long.
const longestShown = 1024

// shown is a name as a table shows it.
func shown(name string) string { return logging.Excerpt(name, longestShown) }

// Query says which rows of a table are wanted.
type Query struct {
	Search string // rows that have this text in a name or an address, in any case; empty: all
	Only   string // a kind of rows; empty: all
	Lock   string // of clients, those that wait for this lock; empty: all
}

// The bounds of a table: its rows, and the bytes of the text that is searched for.
const (
	maxRows   = 500
	maxSearch = 1024
)

// parseQuery reads a query for a table with these kinds of rows, and with one more field; empty: none. Its errors are
// for operators.
func parseQuery(form url.Values, field string, kinds ...string) (Query, error) {
	q := Query{Search: strings.ToLower(form.Get("search")), Only: form.Get("only"), Lock: form.Get("lock")}
	fields := []string{"search", "only"}
	if field != "" {
		fields = append(fields, field)
	}
	for name := range form {
		if !slices.Contains(fields, name) {
			return Query{}, fmt.Errorf("%q is none of %s", name, strings.Join(fields, ", "))
		}
	}
	if len(q.Search) > maxSearch {
		return Query{}, fmt.Errorf("search: longer than %d bytes", maxSearch)
	}
	if q.Only != "" && !slices.Contains(kinds, q.Only) {
		return Query{}, fmt.Errorf("only: %q is none of %s", q.Only, strings.Join(kinds, ", "))
	}
	return q, nil
}

// has reports whether one of the texts has what is searched for.
func (q *Query) has(texts ...string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), q.Search) })
}

// process is what a table says of the proxy itself.
type process struct {
	Version  string  `json:"version"`
	UUID     string  `json:"uuid"`
	Uptime   float64 `json:"uptime_seconds"`
	Upstream bool    `json:"upstream_up"`
	Why      string  `json:"upstream_error,omitempty"` // why Redis is not reachable, or takes no writes
	Draining bool    `json:"draining"`
}

func (s *Server) process() process {
	n := s.proxy.Stats()
	why := ""
	if ready, err := s.proxy.Ready(); !ready && err != nil {
		why = shown(err.Error())
	}
	return process{n.Version, n.UUID, n.Uptime.Seconds(), n.UpstreamUp, why, s.proxy.Draining()}
}

// locks answers with a table of locks.
func (s *Server) locks(w http.ResponseWriter, r *http.Request) {
	s.table(w, r, func(q Query) any {
		ctx, cancel := context.WithTimeout(s.life, holderLimit)
		defer cancel()
		found := s.view.FindLocks(ctx, q)
		found.process = s.process()
		return found
	}, "", "contended", "held", "orphaned")
}

// hot answers with a table of hot locks.
func (s *Server) hot(w http.ResponseWriter, r *http.Request) {
	s.table(w, r, func(q Query) any {
		found := s.view.FindHot(q)
		found.process = s.process()
		return found
	}, "")
}

// clients answers with a table of clients.
func (s *Server) clients(w http.ResponseWriter, r *http.Request) {
	s.table(w, r, func(q Query) any {
		found := s.view.FindClients(q)
		found.process = s.process()
		return found
	}, "lock", "waiting", "pinned", "unanswered")
}

// table answers with what is found. field and kinds are those of parseQuery.
func (s *Server) table(
	w http.ResponseWriter, r *http.Request, find func(Query) any, field string, kinds ...string,
) {
	q, err := parseQuery(r.URL.Query(), field, kinds...)
	if err != nil {
		reply(w, http.StatusBadRequest, err.Error())
		return
	}
	found, ok := Ask(s.tables, tableLimit, func() any { return find(q) })
	if !ok {
		reply(w, http.StatusServiceUnavailable, "the proxy has not answered in time")
		return
	}
	document(w, found)
}

// document answers with JSON.
func document(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(true)
	_ = encoder.Encode(v) // the client may be gone
}
