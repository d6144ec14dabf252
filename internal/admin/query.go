package admin

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query says which rows of a table are wanted.
type Query struct {
	Search     string // rows that have this text in a name or an address, in any case; empty: all
	Only       string // a kind of rows; empty: all
	Sort       string // the column to sort by
	Descending bool
	Offset     int // rows to skip
	Limit      int // rows at most
}

// The bounds of a query. No query keeps more than maxOffset+maxLimit rows in memory.
const (
	defaultLimit = 100
	maxLimit     = 500
	maxOffset    = 10_000
	maxSearch    = 1024 // bytes
)

// table is a kind of table.
type table[T any] struct {
	only    []string
	columns []column[T]      // by which its rows can be sorted; the first is the default
	alike   func(a, b T) int // the order of rows that a column does not tell apart
}

// column is one way to sort a table.
type column[T any] struct {
	name    string
	compare func(a, b T) int
}

// by is a column of texts or numbers.
func by[T any, V cmp.Ordered](name string, of func(row *T) V) column[T] {
	return column[T]{name, func(a, b T) int { return cmp.Compare(of(&a), of(&b)) }}
}

// since is a column of moments, sorted by how long ago they are.
func since[T any](name string, of func(row *T) time.Time) column[T] {
	return column[T]{name, func(a, b T) int { return longer(of(&a), of(&b)) }}
}

// longer compares how long ago two moments are. The zero time is no time ago.
func longer(a, b time.Time) int {
	switch {
	case a.IsZero() || b.IsZero():
		return b2i(b.IsZero()) - b2i(a.IsZero())
	default:
		return b.Compare(a)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// parse reads a query. Its errors are for operators.
func (k *table[T]) parse(form url.Values) (Query, error) {
	q := Query{Search: strings.ToLower(form.Get("search")), Only: form.Get("only"), Sort: k.columns[0].name, Limit: defaultLimit}
	for name := range form {
		if !slices.Contains([]string{"search", "only", "sort", "order", "offset", "limit"}, name) {
			return Query{}, fmt.Errorf("%q is none of search, only, sort, order, offset, limit", name)
		}
	}
	if len(q.Search) > maxSearch {
		return Query{}, fmt.Errorf("search: longer than %d bytes", maxSearch)
	}
	if q.Only != "" && !slices.Contains(k.only, q.Only) {
		return Query{}, fmt.Errorf("only: %q is none of %s", q.Only, strings.Join(k.only, ", "))
	}
	if sort := form.Get("sort"); sort != "" {
		if q.Sort = sort; k.column(sort) == nil {
			return Query{}, fmt.Errorf("sort: %q is none of %s", sort, strings.Join(k.names(), ", "))
		}
	}
	switch order := form.Get("order"); order {
	case "", "up":
	case "down":
		q.Descending = true
	default:
		return Query{}, fmt.Errorf("order: %q is none of up, down", order)
	}
	for name, to := range map[string]struct {
		value *int
		most  int
	}{"offset": {&q.Offset, maxOffset}, "limit": {&q.Limit, maxLimit}} {
		text := form.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > to.most {
			return Query{}, fmt.Errorf("%s: %q is not a number from 0 to %d", name, text, to.most)
		}
		*to.value = n
	}
	return q, nil
}

// names are the columns by which the table can be sorted.
func (k *table[T]) names() (names []string) {
	for i := range k.columns {
		names = append(names, k.columns[i].name)
	}
	return names
}

// column is the column of that name; nil: there is none.
func (k *table[T]) column(name string) *column[T] {
	if i := slices.IndexFunc(k.columns, func(c column[T]) bool { return c.name == name }); i >= 0 {
		return &k.columns[i]
	}
	return nil
}

// selection takes the rows of a query, which has been parsed.
func (k *table[T]) selection(q Query) selection[T] {
	compare := k.column(q.Sort).compare
	return selection[T]{skip: q.Offset, limit: q.Limit, compare: func(a, b T) int {
		switch c := compare(a, b); {
		case c == 0:
			return k.alike(a, b)
		case q.Descending:
			return -c
		default:
			return c
		}
	}}
}

// has reports whether one of the texts has what is searched for.
func (q *Query) has(texts ...string) bool {
	return q.Search == "" || slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), q.Search) })
}

// A selection keeps the first rows of many in some order, so that the memory does not depend on their number.
type selection[T any] struct {
	compare func(a, b T) int
	skip    int // rows before the page
	limit   int // rows of the page
	count   int // all rows
	rows    []T
}

// spare is how many rows are gathered before the selection sorts out again.
const spare = 1024

func (s *selection[T]) add(row T) {
	s.count++
	s.rows = append(s.rows, row)
	if keep := s.skip + s.limit; len(s.rows) >= 2*keep+spare {
		s.sortOut(keep)
	}
}

func (s *selection[T]) sortOut(keep int) {
	slices.SortStableFunc(s.rows, s.compare)
	keep = min(keep, len(s.rows))
	clear(s.rows[keep:])
	s.rows = s.rows[:keep]
}

// page returns the rows that are wanted. It is called once.
func (s *selection[T]) page() []T {
	s.sortOut(s.skip + s.limit)
	return s.rows[min(s.skip, len(s.rows)):]
}
