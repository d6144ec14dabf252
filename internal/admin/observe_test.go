package admin

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/lockproxy/lockproxy/internal/proxy/status"
)

// The names in the dashboard and the alerts are of metrics that exist, and promtool finds nothing to complain about.
func TestMetricsAreLintFreeAndTheirUsersNameThem(t *testing.T) {
	_, text := newStand(t).get("/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "lockproxy_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	known := map[string]bool{"stats_age_seconds": true}
	for _, row := range status.Table {
		known[row.Metric] = true
		if row.Kind == status.Timing {
			known[row.Metric+"_bucket"], known[row.Metric+"_count"], known[row.Metric+"_sum"] = true, true, true
		}
	}
	for _, file := range []string{"../../configs/grafana-dashboard.json", "../../configs/prometheus-alerts.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\blockproxy_([a-z_]+)`).FindAllStringSubmatch(string(text), -1)
		if len(names) < 5 {
			t.Errorf("%s has only %d names", file, len(names))
		}
		for _, name := range names {
			if !known[name[1]] {
				t.Errorf("%s: there is no metric %s", file, name[0])
			}
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(text) {
			t.Errorf("%s is not JSON", file)
		}
	}
}
