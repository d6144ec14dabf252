package admin

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/proxy"
)

// clientsOf is a source of these clients.
func clientsOf(all ...proxy.ClientStatus) *Source {
	return &Source{EachClient: func(f func(proxy.ClientStatus)) {
		for _, c := range all {
			f(c)
		}
	}}
}

// ids are the rows of a table that a query asks for.
func ids(t *testing.T, s *Source, query string) (all []uint64, table Clients) {
	t.Helper()
	form, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	q, err := ParseClients(form)
	if err != nil {
		t.Fatal(err)
	}
	table = s.FindClients(q)
	for _, c := range table.Rows {
		all = append(all, c.ID)
	}
	return all, table
}

func TestClientsAreSearchedSortedAndInPages(t *testing.T) {
	now := time.Now()
	s := clientsOf(
		proxy.ClientStatus{ID: 3, Addr: "10.0.0.3:1", Name: "Cron", Lock: "report", Asked: now.Add(-time.Minute), Unread: 5},
		proxy.ClientStatus{ID: 1, Addr: "10.0.0.9:1", Name: "web", Pin: "MULTI", Unanswered: 2},
		proxy.ClientStatus{ID: 2, Addr: "10.0.0.1:1", Lock: "mail", Asked: now.Add(-time.Hour), Unread: 9},
	)
	for query, want := range map[string][]uint64{
		"":                            {1, 2, 3},
		"order=down":                  {3, 2, 1},
		"sort=address":                {2, 3, 1},
		"sort=name":                   {2, 3, 1},
		"sort=waiting":                {1, 3, 2}, // one that does not wait comes first
		"sort=waiting&order=down":     {2, 3, 1},
		"sort=unread&order=down":      {2, 3, 1},
		"sort=pin&order=down":         {1, 2, 3}, // alike: by ID
		"search=CRON":                 {3},
		"search=mail":                 {2},
		"search=10.0.0.":              {1, 2, 3},
		"search=nothing":              nil,
		"only=waiting":                {2, 3},
		"only=pinned":                 {1},
		"only=unanswered":             {1},
		"limit=1":                     {1},
		"offset=1&limit=1&order=down": {2},
		"offset=9":                    nil,
		"limit=0":                     nil,
	} {
		got, table := ids(t, s, query)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", query, got, want)
		}
		if table.Clients != 3 || table.Waiting != 2 || table.Pinned != 1 {
			t.Errorf("%q: %+v", query, table)
		}
	}
	_, table := ids(t, s, "sort=id&limit=1")
	if row := table.Rows[0]; row.Waiting != -1 || row.Pin != "MULTI" || table.Matching != 3 {
		t.Errorf("%+v of %d", row, table.Matching)
	}
}

func TestEachColumnSorts(t *testing.T) {
	less := proxy.ClientStatus{ID: 9, Addr: "a", Name: "a", Identity: "a", State: "a", Pin: "a", Unanswered: 1, Unread: 1}
	more := proxy.ClientStatus{ID: 8, Addr: "b", Name: "b", Identity: "b", State: "b", Pin: "b", Unanswered: 2, Unread: 2, Asked: time.Now()}
	for _, column := range clientTable.names() {
		want := []uint64{9, 8}
		if column == "id" {
			want = []uint64{8, 9}
		}
		if got, _ := ids(t, clientsOf(more, less), "sort="+column); !slices.Equal(got, want) {
			t.Errorf("by %s: %v", column, got)
		}
	}
	old, young := proxy.SeenLock{}, proxy.SeenLock{}
	old.Key, old.Client.Addr, old.TTL, old.Waiters = "a", "a", 1, 1
	young.Key, young.Client.Addr, young.TTL, young.Waiters = "b", "b", 2, 2
	young.Since, young.Oldest = time.Now(), time.Now()
	for _, column := range lockTable.columns {
		if column.compare(old, young) >= 0 || column.compare(young, old) <= 0 || column.compare(old, old) != 0 {
			t.Errorf("locks are not sorted by %s", column.name)
		}
	}
}

// TestATableKeepsFewRows compares a page of very many rows with the same page of a sorted list.
func TestATableKeepsFewRows(t *testing.T) {
	s := selection[int]{skip: 20, limit: 10, compare: func(a, b int) int { return a - b }}
	for i := range 10_000 {
		s.add(i * 7919 % 10_007)
		if len(s.rows) >= 2*30+spare {
			t.Fatalf("%d rows are kept", len(s.rows))
		}
	}
	var all []int
	for i := range 10_000 {
		all = append(all, i*7919%10_007)
	}
	slices.Sort(all)
	if diff := cmp.Diff(all[20:30], s.page()); diff != "" || s.count != 10_000 {
		t.Errorf("%d rows\n%s", s.count, diff)
	}
}

func TestABadQueryIsRefused(t *testing.T) {
	for _, query := range []string{
		"page=1", "only=free", "sort=colour", "order=sideways", "offset=-1", "offset=10001", "limit=501", "limit=x", fmt.Sprintf("search=%01025d", 0),
	} {
		form, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if q, err := ParseClients(form); err == nil {
			t.Errorf("%.20q is %+v", query, q)
		}
	}
}

// 500 rows with names of megabytes would be an answer of gigabytes.
func TestLongNamesAreShortened(t *testing.T) {
	const more = 5000
	for _, rune := range []string{"n", "\x01", "ä", "語", "\xff", "😀"} {
		name := strings.Repeat(rune, (longestShown+more)/len(rune)+1)
		clients := clientsOf(proxy.ClientStatus{Name: name, Lock: name})
		_, table := ids(t, clients, "")
		held := &Source{EachLock: func(f func(proxy.SeenLock)) {
			f(proxy.SeenLock{Held: true, Hold: lockcmds.Hold{Key: name, Client: contract.ClientInfo{Name: name}}})
		}}
		row, client := held.FindLocks(t.Context(), Query{Sort: "key", Limit: 1}).Rows[0], table.Rows[0]
		if row.KeyBytes != len(name) || row.KeyBase64 != "" {
			t.Errorf("%q: %d bytes, %q", rune, row.KeyBytes, row.KeyBase64)
		}
		for what, got := range map[string]string{"key": row.Key, "name": row.Name, "client's name": client.Name, "client's lock": client.WaitsFor} {
			begin, end, _ := strings.Cut(got, "...")
			if !strings.HasPrefix(name, begin) || len(begin) > longestShown || len(begin)%len(rune) != 0 || end != fmt.Sprintf(" (%d more bytes)", len(name)-len(begin)) {
				t.Errorf("%s of %q: %d bytes, %q", what, rune, len(begin), end)
			}
		}
	}
}
