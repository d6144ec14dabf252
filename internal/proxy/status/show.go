package status

import (
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/metrics"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Info is the section lockproxy of INFO, in Redis's shape for that version of the protocol.
func (src *Source) Info(proto int) []byte {
	text := src.Stats().info()
	if proto < 3 {
		return resp.AppendBulk(nil, text)
	}
	reply := resp.AppendHeader(nil, '=', len("txt:")+len(text))
	return append(append(append(reply, "txt:"...), text...), '\r', '\n')
}

func (s Stats) info() string {
	var b strings.Builder
	b.WriteString("# Lockproxy\r\n")
	for _, row := range Table {
		if row.Info != "" {
			b.WriteString(row.Info + ":" + row.text(&s) + "\r\n")
		}
	}
	return b.String()
}

func (r *Row) text(s *Stats) string {
	switch {
	case r.Text != nil:
		return r.Text(s)
	case r.Number == nil:
		return metrics.Joined(r.ByLabel(s))
	}
	return strconv.FormatInt(r.Number(s), 10)
}
