package admin

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
)

// Client is a row of the table of clients. Durations are in seconds, and -1 stands for none.
type Client struct {
	ID        uint64  `json:"id"`
	Address   string  `json:"address"`
	Name      string  `json:"name"` // CLIENT SETNAME
	Identity  string  `json:"identity"`
	Connected float64 `json:"connected_seconds"`
	// Why its next command has to wait: lock, pin, replies, turn, client, reply, list, closing.
	State      string  `json:"state"`
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
	process
	At       time.Time `json:"at"`
	Clients  int       `json:"connected"`
	Waiting  int       `json:"waiting"` // for locks
	Pinned   int       `json:"pinned"`
	Matching int       `json:"matching"`
	Rows     []Client  `json:"clients"`
}

// FindClients looks at all clients. The rows are those of the clients that have connected first.
func (s *Source) FindClients(q Query) Clients {
	now := time.Now()
	out := Clients{At: now, Rows: []Client{}}
	s.EachClient(func(c proxy.ClientStatus) {
		out.Clients++
		if c.Lock != "" {
			out.Waiting++
		}
		if c.Pin != "" {
			out.Pinned++
		}
		switch {
		case q.Only == "waiting" && c.Lock == "",
			q.Only == "pinned" && c.Pin == "",
			q.Only == "unanswered" && c.Unanswered == 0,
			q.Lock != "" && c.Lock != q.Lock:
			return
		case !q.has(c.Addr, c.Name, c.Identity, c.Lock, c.Pin):
			return
		}
		if out.Matching++; out.Matching > maxRows {
			return
		}
		out.Rows = append(out.Rows, Client{
			ID: c.ID, Address: c.Addr, Name: shown(c.Name), Identity: c.Identity, Connected: ago(c.Since, now),
			State: c.State, WaitsFor: shown(c.Lock), Waiting: ago(c.Asked, now), Pin: c.Pin,
			Unanswered: c.Unanswered, Unread: c.Unread, Paused: c.Paused, SetAside: c.SetAside,
		})
	})
	return out
}
