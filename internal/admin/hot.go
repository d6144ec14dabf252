package admin

import "time"

// HotLock is a row of the table of hot locks.
type HotLock struct {
	Key      string  `json:"key"`
	Database int     `json:"database"`
	User     string  `json:"user"` // whose clients have waited for it
	Waits    int64   `json:"waits"`
	Waited   float64 `json:"waited_seconds"` // all these waits together
}

// HotLocks is the answer of /hot.
type HotLocks struct {
	process
	At       time.Time `json:"at"`
	Matching int       `json:"matching"`
	Rows     []HotLock `json:"hot"`
}

// mostHot is how many hot locks the table has.
const mostHot = 20

// FindHot lists the locks for which clients have waited longest, the longest first.
func (s *Source) FindHot(q Query) HotLocks {
	out := HotLocks{At: time.Now(), Rows: []HotLock{}}
	for _, l := range s.HotLocks(mostHot) {
		if q.has(l.Key) {
			out.Rows = append(out.Rows, HotLock{shown(l.Key), l.DB, l.User, l.Waits, l.Waited.Seconds()})
		}
	}
	out.Matching = len(out.Rows)
	return out
}
