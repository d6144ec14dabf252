package admin

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Query says which rows of a table are wanted.
type Query struct {
	Search string // rows that have this text in a name or an address, in any case; empty: all
	Only   string // a kind of rows; empty: all
}

// The bounds of a table: its rows, and the bytes of the text that is searched for.
const (
	maxRows   = 500
	maxSearch = 1024
)

// parseQuery reads a query for a table with these kinds of rows. Its errors are for operators.
func parseQuery(form url.Values, kinds ...string) (Query, error) {
	q := Query{Search: strings.ToLower(form.Get("search")), Only: form.Get("only")}
	for name := range form {
		if name != "search" && name != "only" {
			return Query{}, fmt.Errorf("%q is none of search, only", name)
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
	return q.Search == "" || slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), q.Search) })
}
