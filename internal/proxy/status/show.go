package status

import (
	"fmt"
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

// Document is the text of docs/METRICS.md.
func Document() string {
	var b strings.Builder
	b.WriteString(documentHead)
	described := map[string]bool{}
	for _, row := range Table {
		help := row.Help
		if described[help] {
			help = "the same"
		}
		described[row.Help] = true
		if row.Waits != nil {
			help += " Histogram."
		}
		metric := ""
		if row.Metric != "" {
			metric = "lockproxy_" + row.Metric
			if row.Value != "" {
				metric += fmt.Sprintf("{%s=%q}", row.Label, row.Value)
			} else if row.Label != "" {
				metric += "{" + row.Label + "}"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", code(row.Info), code(metric), help)
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

const documentHead = `# Metrics

This file is written from the table in internal/proxy/status by ` + "`go test ./internal/proxy/status -update`" + `.

INFO lockproxy and /metrics (` + "`admin-listen`" + `) show the same numbers. Counters end in ` + "`_total`" + ` and begin at 0 when the proxy
starts. Values of labels are the words of the log and the settings with underscores (` + "`max_hold`, `max_clients`" + `), and the error
codes. /metrics, which also speaks OpenMetrics, has one number more: ` + "`lockproxy_stats_age_seconds`" + ` is the age of the others if
the proxy does not answer, else 0.

| INFO lockproxy | /metrics | Meaning |
|---|---|---|
`
