package admin

import (
	"cmp"
	"net/url"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
)

// Client is a row of the table of clients. Durations are in seconds, and -1 stands for none.
type Client struct {
	ID         uint64  `json:"id"`
	Address    string  `json:"address"`
	Name       string  `json:"name"` // CLIENT SETNAME
	Identity   string  `json:"identity"`
	Connected  float64 `json:"connected_seconds"`
	State      string  `json:"state"`               // why its next command has to wait: lock, pin, replies, turn, client, reply, list, admission, closing
	WaitsFor   string  `json:"waits_for,omitempty"` // the key of a lock
	Waiting    float64 `json:"waiting_seconds"`     // for that lock
	Pin        string  `json:"pin,omitempty"`       // the command that made a connection of its own necessary
	Unanswered int     `json:"unanswered"`          // commands
	Unread     int     `json:"unread_bytes"`        // of replies that it has not taken
	Paused     bool    `json:"paused"`              // its bytes are not read at present
	SetAside   bool    `json:"lane_set_aside"`
}

// Clients is the answer of /clients.
type Clients struct {
	At       time.Time `json:"at"`
	Clients  int       `json:"connected"`
	Waiting  int       `json:"waiting"` // for locks
	Pinned   int       `json:"pinned"`
	Matching int       `json:"matching"`
	Offset   int       `json:"offset"`
	Rows     []Client  `json:"clients"`
}

// clientTable is the table of clients. Its default order is that in which they have connected.
var clientTable = table[proxy.ClientStatus]{
	only: []string{"waiting", "pinned", "unanswered"},
	columns: []column[proxy.ClientStatus]{
		by("id", func(c *proxy.ClientStatus) uint64 { return c.ID }),
		by("address", func(c *proxy.ClientStatus) string { return c.Addr }),
		by("name", func(c *proxy.ClientStatus) string { return c.Name }),
		by("identity", func(c *proxy.ClientStatus) string { return c.Identity }),
		by("state", func(c *proxy.ClientStatus) string { return c.State }),
		since("waiting", func(c *proxy.ClientStatus) time.Time { return c.Asked }),
		by("pin", func(c *proxy.ClientStatus) string { return c.Pin }),
		by("unanswered", func(c *proxy.ClientStatus) int { return c.Unanswered }),
		by("unread", func(c *proxy.ClientStatus) int { return c.Unread }),
	},
	alike: func(a, b proxy.ClientStatus) int { return cmp.Compare(a.ID, b.ID) },
}

// ParseClients reads a query for clients.
func ParseClients(form url.Values) (Query, error) { return clientTable.parse(form) }

// FindClients looks at all clients.
func (s *Source) FindClients(q Query) Clients {
	now := time.Now()
	out := Clients{At: now, Offset: q.Offset}
	found := clientTable.selection(q)
	s.EachClient(func(c proxy.ClientStatus) {
		out.Clients++
		if c.Lock != "" {
			out.Waiting++
		}
		if c.Pin != "" {
			out.Pinned++
		}
		switch {
		case q.Only == "waiting" && c.Lock == "", q.Only == "pinned" && c.Pin == "", q.Only == "unanswered" && c.Unanswered == 0:
		case q.has(c.Addr, c.Name, c.Identity, c.Lock, c.Pin):
			found.add(c)
		}
	})
	page := found.page()
	out.Matching = found.count
	out.Rows = make([]Client, len(page))
	for i := range page {
		c := &page[i]
		out.Rows[i] = Client{
			ID: c.ID, Address: c.Addr, Name: shown(c.Name), Identity: c.Identity, Connected: ago(c.Since, now), State: c.State, WaitsFor: shown(c.Lock), Waiting: ago(c.Asked, now),
			Pin: c.Pin, Unanswered: c.Unanswered, Unread: c.Unread, Paused: c.Paused, SetAside: c.SetAside,
		}
	}
	return out
}
