package metrics

import (
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// mostHot is how many hot locks INFO shows.
const mostHot = 10

// Info is the section lockproxy of INFO, in Redis's shape for that version of the protocol, for a client of that
// account: it does not see the locks of others.
func (src *Source) Info(proto int, of lockcmds.Account) []byte {
	s := src.Stats()
	s.HotLocks = src.Locks.HotLocks(mostHot, &of)
	return verbatim(proto, s.info(func(*Row) bool { return true }))
}

// Outage is the part of Info that says why Redis is away, also for a client that has not logged in.
func (src *Source) Outage(proto int) []byte {
	var s Stats
	s.outage(src)
	return verbatim(proto, s.info(func(r *Row) bool { return r.Outage }))
}

func verbatim(proto int, text string) []byte {
	if proto < 3 {
		return resp.AppendBulk(nil, text)
	}
	reply := resp.AppendHeader(nil, '=', len("txt:")+len(text))
	return append(append(append(reply, "txt:"...), text...), '\r', '\n')
}

func (s *Stats) info(shown func(*Row) bool) string {
	var b strings.Builder
	b.WriteString("# Lockproxy\r\n")
	for _, row := range Table {
		if row.Info != "" && shown(&row) {
			b.WriteString(row.Info + ":" + row.text(s) + "\r\n")
		}
	}
	return b.String()
}

func (r *Row) text(s *Stats) string {
	switch {
	case r.Text != nil:
		return r.Text(s)
	case r.Number == nil:
		return Joined(r.ByLabel(s))
	}
	return strconv.FormatInt(r.Number(s), 10)
}

// longestHot is how much of the name of a hot lock INFO shows, in bytes.
const longestHot = 64

// hotText names hot locks with their waits in milliseconds. Clients choose names, so they are quoted.
func hotText(locks []lockcmds.HotLock) string {
	var all []string
	for _, l := range locks {
		name := strconv.Quote(logging.Excerpt(l.Key, longestHot))
		all = append(all, name+"="+strconv.FormatInt(l.Waited.Milliseconds(), 10))
	}
	return strings.Join(all, ",")
}
