package view

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
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

// kind is a kind of table.
type kind struct {
	only  []string
	sorts []string // the first is the default
}

// parse reads a query. Its errors are for operators.
func (k kind) parse(form url.Values) (Query, error) {
	q := Query{Search: strings.ToLower(form.Get("search")), Only: form.Get("only"), Sort: k.sorts[0], Limit: defaultLimit}
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
		if q.Sort = sort; !slices.Contains(k.sorts, sort) {
			return Query{}, fmt.Errorf("sort: %q is none of %s", sort, strings.Join(k.sorts, ", "))
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

// ordered turns a comparison round if the query wants that. Rows that are alike are in the order of less.
func ordered[T any](q Query, compare, less func(a, b T) int) func(a, b T) int {
	return func(a, b T) int {
		c := compare(a, b)
		if q.Descending {
			c = -c
		}
		if c == 0 {
			c = less(a, b)
		}
		return c
	}
}
