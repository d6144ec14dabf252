package metrics

import (
	"flag"
	"fmt"
	"os"
	"slices"
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
		t.Errorf("run go test ./internal/proxy/metrics -update (-table +document):\n%s", diff)
	}
}

// metricsDocument is the text of docs/METRICS.md.
func metricsDocument() string {
	var b strings.Builder
	b.WriteString(documentHead)
	for i := range Table {
		help := Table[i].Help
		if slices.IndexFunc(Table, func(r Row) bool { return r.Help == help }) != i {
			continue // in the line of an earlier row
		}
		var infos, names []string
		for _, row := range Table {
			if row.Help == help {
				infos, names = appendCode(infos, row.Info), appendCode(names, row.name())
			}
		}
		if Table[i].Waits != nil {
			help += " Histogram."
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.Join(infos, ", "), strings.Join(names, ", "), help)
	}
	return b.String()
}

// name is that of a row at /metrics, with its label.
func (r *Row) name() string {
	switch {
	case r.Metric == "":
		return ""
	case r.Label == "":
		return "lockproxy_" + r.Metric
	}
	return "lockproxy_" + r.Metric + "{" + r.Label + "}"
}

// appendCode adds a name that is not in the list.
func appendCode(list []string, name string) []string {
	if name = "`" + name + "`"; name == "``" || slices.Contains(list, name) {
		return list
	}
	return append(list, name)
}

const documentHead = `# Metrics

Written from the table in internal/proxy/metrics by ` + "`go test ./internal/proxy/metrics -update`" + `.

INFO lockproxy and /metrics (` + "`admin-listen`" + `) show the same numbers. Counters end in ` + "`_total`" + ` and begin at 0 when the proxy
starts. Values of labels are the words of the log and the settings, with underscores (` + "`max_clients`" + `). /metrics also has
` + "`lockproxy_stats_age_seconds`" + `: the age of the numbers if the proxy does not answer, else 0.

| INFO lockproxy | /metrics | Meaning |
|---|---|---|
`
