package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
func ids(s *Source, q Query) (all []uint64, table Clients) {
	table = s.FindClients(q)
	for _, c := range table.Rows {
		all = append(all, c.ID)
	}
	return all, table
}

func TestClientsAreSearched(t *testing.T) {
	now := time.Now()
	s := clientsOf(
		proxy.ClientStatus{ID: 1, Addr: "10.0.0.9:1", Name: "web", Pin: "MULTI", Unanswered: 2},
		proxy.ClientStatus{ID: 2, Addr: "10.0.0.1:1", Lock: "mail", Asked: now.Add(-time.Hour), Unread: 9},
		proxy.ClientStatus{ID: 3, Addr: "10.0.0.3:1", Name: "Cron", Lock: "report", Asked: now.Add(-time.Minute), Unread: 5},
	)
	for query, want := range map[Query][]uint64{
		{}:                   {1, 2, 3},
		{Search: "cron"}:     {3},
		{Search: "mail"}:     {2},
		{Search: "10.0.0."}:  {1, 2, 3},
		{Search: "nothing"}:  nil,
		{Lock: "mail"}:       {2},
		{Lock: "mai"}:        nil,
		{Only: "waiting"}:    {2, 3},
		{Only: "pinned"}:     {1},
		{Only: "unanswered"}: {1},
	} {
		got, table := ids(s, query)
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", query, got, want)
		}
		if table.Clients != 3 || table.Waiting != 2 || table.Pinned != 1 || table.Matching != len(want) {
			t.Errorf("%+v: %+v", query, table)
		}
	}
	_, table := ids(s, Query{})
	if row := table.Rows[0]; row.Waiting != -1 || row.Pin != "MULTI" {
		t.Errorf("%+v", row)
	}
}

// A table has a bounded number of rows: the locks with the longest waits, and the clients that have connected first.
func TestATableIsBounded(t *testing.T) {
	const many = 10_000
	now := time.Now()
	s := &Source{
		EachLock: func(f func(proxy.SeenLock)) {
			for i := range many {
				i = i * 7919 % many // in no order
				var l proxy.SeenLock
				if l.Key, l.Held = fmt.Sprintf("k%05d", i), true; i < 100 {
					l.Oldest = now.Add(time.Duration(i) * time.Second)
				}
				f(l)
			}
		},
		EachClient: func(f func(proxy.ClientStatus)) {
			for i := range many {
				f(proxy.ClientStatus{ID: uint64(i)})
			}
		},
	}
	locks, clients := s.FindLocks(t.Context(), Query{}), s.FindClients(Query{})
	if locks.Matching != many || len(locks.Rows) != maxRows || clients.Matching != many || len(clients.Rows) != maxRows {
		t.Fatalf("%d of %d locks, %d of %d clients", len(locks.Rows), locks.Matching, len(clients.Rows), clients.Matching)
	}
	for i := range maxRows {
		if locks.Rows[i].Key != fmt.Sprintf("k%05d", i) || clients.Rows[i].ID != uint64(i) {
			t.Fatalf("row %d: lock %s, client %d", i, locks.Rows[i].Key, clients.Rows[i].ID)
		}
	}
}

// 500 rows with names of megabytes would be an answer of gigabytes.
func TestLongNamesAreShortened(t *testing.T) {
	const more = 5000
	for _, rune := range []string{"n", "\x01", "ä", "語", "\xff", "😀"} {
		name := strings.Repeat(rune, (longestShown+more)/len(rune)+1)
		clients := clientsOf(proxy.ClientStatus{Name: name, Lock: name})
		_, table := ids(clients, Query{})
		held := &Source{EachLock: func(f func(proxy.SeenLock)) {
			f(proxy.SeenLock{Held: true, Hold: lockcmds.Hold{Key: name, Client: contract.ClientInfo{Name: name}}})
		}}
		row, client := held.FindLocks(t.Context(), Query{}).Rows[0], table.Rows[0]
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

// A lease that is not renewed is not said to be renewed.
func TestALeaseThatIsNotRenewedIsLate(t *testing.T) {
	for want, hold := range map[string]lockcmds.Hold{renewed: {}, late: {Late: true}, fixed: {Fixed: true, Late: true}} {
		if row := rowOf(&proxy.SeenLock{Held: true, Hold: hold}, time.Now()); row.Renewal != want {
			t.Errorf("%+v is %s", hold, row.Renewal)
		}
	}
	if row := rowOf(&proxy.SeenLock{}, time.Now()); row.Renewal != "" {
		t.Errorf("a hold elsewhere is %s", row.Renewal)
	}
}

func TestHotLocksAreATable(t *testing.T) {
	s := &Source{HotLocks: func(int) []proxy.HotLock {
		return []proxy.HotLock{{Key: "Report", Waits: 2, Waited: 3 * time.Second}, {Key: "mail", Waits: 1}}
	}}
	for search, want := range map[string]string{"": "Report mail", "report": "Report", "x": ""} {
		var keys []string
		for _, l := range s.FindHot(Query{Search: search}).Rows {
			keys = append(keys, l.Key)
		}
		if got := strings.Join(keys, " "); got != want {
			t.Errorf("%s: %s", search, got)
		}
	}
}
