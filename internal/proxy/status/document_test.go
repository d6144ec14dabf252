package status

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/METRICS.md")

const document = "../../../docs/METRICS.md"

func TestDocumentIsTheTable(t *testing.T) {
	if *update {
		if err := os.WriteFile(document, []byte(metricsDocument()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(metricsDocument(), string(text)); diff != "" {
		t.Errorf("run go test ./internal/proxy/status -update (-table +document):\n%s", diff)
	}
}

// metricsDocument is the text of docs/METRICS.md.
func metricsDocument() string {
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
