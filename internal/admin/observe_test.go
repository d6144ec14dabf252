package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// The dashboard and the alerts ask for metrics and labels that exist, and promtool finds nothing to complain about.
func TestMetricsAreLintFreeAndTheirUsersNameThem(t *testing.T) {
	t.Parallel()
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
	selector := regexp.MustCompile(`\b((?:lockproxy|go)_[a-z_]+)(\{[^}]*\})?`)
	matcher := regexp.MustCompile(`(\w+)[=!]~?"([^"]*)"`)
	for _, file := range []string{"../../configs/grafana-dashboard.json", "../../configs/prometheus-alerts.yml"} {
		file, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := selector.FindAllStringSubmatch(strings.ReplaceAll(string(file), `\"`, `"`), -1)
		if len(found) < 5 {
			t.Errorf("%d names in %.100s", len(found), file)
		}
		for _, series := range found {
			wanted := []string{"[ {]"}
			for _, label := range matcher.FindAllStringSubmatch(series[2], -1) {
				if label[1] == "job" || label[1] == "instance" {
					continue // these are Prometheus's own
				}
				for value := range strings.SplitSeq(label[2], "|") {
					wanted = append(wanted, fmt.Sprintf(`\{.*\b%s=%q`, label[1], value))
				}
			}
			for _, rest := range wanted {
				if !regexp.MustCompile("(?m)^" + series[1] + rest).MatchString(text) {
					t.Errorf("nothing in the answer is like %s%s", series[1], rest)
				}
			}
		}
	}
}

func TestDashboardExplainsItsPanelsAndSelectsTheirProxies(t *testing.T) {
	text, err := os.ReadFile("../../configs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Type, Title, Description string
			Targets                  []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`\b(?:lockproxy|process|go)_[a-z_]+`)
	for _, p := range dashboard.Panels {
		if p.Type != "row" && p.Description == "" {
			t.Errorf("panel %s has no description", p.Title)
		}
		for _, target := range p.Targets {
			names := len(metric.FindAllString(target.Expr, -1))
			if names == 0 || strings.Count(target.Expr, `{job=~"$job", instance=~"$instance"`) != names {
				t.Errorf("panel %s: %s does not select by job and instance", p.Title, target.Expr)
			}
		}
	}
}

// One style of labels, so that an expression can be written without a look at the answer.
func TestValuesOfLabelsHaveUnderscores(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.client("MULTI")
	_, text := s.get("/metrics")
	labels := regexp.MustCompile(`(?m)^lockproxy_.*\b(?:reason|setting|outcome|end|class|verb|side|state)="([^"]*)"`).FindAllStringSubmatch(text, -1)
	for _, label := range labels {
		if !regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`).MatchString(label[1]) {
			t.Error(label[0])
		}
	}
	if len(labels) < 50 {
		t.Errorf("only %d labels", len(labels))
	}
}

func TestScraperThatAsksForOpenMetricsGetsIt(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	request, err := http.NewRequest(http.MethodGet, "http://"+s.admin.Addr().String()+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	answer, err := s.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/openmetrics-text") || !strings.HasSuffix(string(body), "\n# EOF\n") {
		t.Errorf("%s, %v, %d bytes", answer.Header.Get("Content-Type"), err, len(body))
	}
}

// promtool runs Prometheus's own tool.
func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	switch {
	case err == nil:
	case os.Getenv("LOCKPROXY_REQUIRE_PROMTOOL") != "":
		t.Fatal("no promtool: scripts/install-promtool.sh installs it")
	default:
		t.Skip("no promtool: make promtool installs it")
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestPromtoolAcceptsTheMetrics(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.client("SET a 1", "LOCK k", "UNLOCK k")
	_, text := s.get("/metrics")
	promtool(t, text, "check", "metrics")
}

func TestPromtoolFindsThatAlertsFire(t *testing.T) {
	promtool(t, "", "check", "rules", "../../configs/prometheus-alerts.yml")
	promtool(t, "", "test", "rules", "../../test/alerts/alerts.yml")
	rules, err := os.ReadFile("../../configs/prometheus-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("../../test/alerts/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllSubmatch(rules, -1) {
		if n := strings.Count(string(tests), "alertname: "+string(alert[1])); n < 2 {
			t.Errorf("%s is tested %d times: it should fire once, and once not", alert[1], n)
		}
	}
}

// A measured command shows where its time went: BLPOP waits in Redis.
func TestTimesOfCommandsAreMeasured(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	var commands []string
	for range 70 { // one of 64 is measured
		commands = append(commands, "SET a 1", "LOCK k", "UNLOCK k", "CLIENT GETNAME", "BLPOP none 0.001")
	}
	s.client(commands...)
	for _, class := range []string{"shared", "lock", "pinned", "local"} {
		for name, part := range map[string]bool{"proxy": true, "upstream": class != "local"} {
			count, _ := strconv.Atoi(s.metric(fmt.Sprintf("lockproxy_command_%s_seconds_count{class=%q}", name, class)))
			sum, _ := strconv.ParseFloat(s.metric(fmt.Sprintf("lockproxy_command_%s_seconds_sum{class=%q}", name, class)), 64)
			if part != (count > 0) || part != (sum > 0) || count > 70 {
				t.Errorf("%d commands of class %s took %v s at %s", count, class, sum, name)
			}
		}
	}
	sum, _ := strconv.ParseFloat(s.metric(`lockproxy_command_upstream_seconds_sum{class="pinned"}`), 64)
	count, _ := strconv.ParseFloat(s.metric(`lockproxy_command_upstream_seconds_count{class="pinned"}`), 64)
	if sum/count < 0.001 {
		t.Errorf("BLPOP waited in Redis for %v s on average", sum/count)
	}
}
