package lanes

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Status describes one lane for people.
type Status struct {
	Identity dial.Identity
	At       topology.Node // the server, in a cluster
	Use      string        // what it is for: "all" commands, "reads", "writes", "scripts", "large replies"; or "set aside", "spare"
	Up       bool          // it is connected
	Users    int           // sessions
	Commands int64         // without an answer
	Bytes    int64         // of commands that have not been written
}

// List describes the lanes that serve new sessions, in no order.
func (ls *Lanes) List() []Status {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	list := make([]Status, 0, len(ls.sets))
	for _, s := range ls.sets {
		for i, m := range s.members {
			if m != nil {
				appended, written := m.lane.Progress()
				list = append(list, Status{
					Identity: s.key.target.ID, At: s.key.target.At, Use: s.selection.Use(i), Up: m.lane.IsUp(), Users: m.users,
					Commands: m.lane.Outstanding(), Bytes: appended - written,
				})
			}
		}
	}
	return list
}

// HeldBack estimates the number of clients that wait because Redis holds back writes, beyond those that Redis counts as
// blocked. Redis counts a lane once.
func (ls *Lanes) HeldBack() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !time.Now().Before(ls.paused) {
		return 0
	}
	n := 0
	for _, s := range ls.sets {
		for i, m := range s.members {
			if m != nil && s.selection.MayBeHeld(i) {
				asked, settled, _ := m.lane.Moved()
				n += max(0, min(int(asked-settled), m.users)-1)
			}
		}
	}
	return n
}

// Counts are the numbers of lanes that were set aside, and of connections that lanes have lost, since the start.
func (ls *Lanes) Counts() (aside, lost int64) { return ls.aside.Load(), ls.lost.Load() }
