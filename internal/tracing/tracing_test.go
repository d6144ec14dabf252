package tracing

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/logging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector takes spans by OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []*tracepb.Span
	about map[string]string
}

func newCollector(t *testing.T) *collector {
	c := &collector{about: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data tracepb.TracesData // on the wire as ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &data) != nil {
			t.Errorf("a request to %s that is none of OTLP", r.URL)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range data.ResourceSpans {
			for _, kv := range of.Resource.Attributes {
				c.about[kv.Key] = kv.Value.GetStringValue()
			}
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// start returns a tracer with what it logs.
func start(t *testing.T, endpoint string) (*Tracer, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	tracer, err := New(Options{Endpoint: endpoint, Version: "v1", Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tracer.Close)
	return tracer, logs
}

func attributesOf(s *tracepb.Span) map[string]any {
	all := map[string]any{}
	for _, kv := range s.Attributes {
		if v := kv.Value.GetStringValue(); v != "" {
			all[kv.Key] = v
		} else {
			all[kv.Key] = kv.Value.GetIntValue()
		}
	}
	return all
}

func TestWaitsAndHoldsAreSpans(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
	c := newCollector(t)
	tracer, logs := start(t, c.URL)
	at := time.Unix(1_000_000, 0)
	me, boss := observe.Party{Owner: "me", Addr: "10.0.0.1:5", Name: "job"}, observe.Party{Owner: "boss", Name: "cron"}
	tracer.Ended(observe.Ending{At: at, Kind: observe.Wait, Key: "k", By: me, Took: 2 * time.Second, Outcome: observe.Granted, Fence: 7, Sync: 1, Behind: boss})
	tracer.Ended(observe.Ending{At: at, Kind: observe.Wait, Key: "free", By: me, Outcome: observe.Granted, Fence: 1})
	tracer.Ended(observe.Ending{At: at.Add(3 * time.Second), Kind: observe.Hold, Key: "k", Mode: "shared", By: me, Took: 3 * time.Second, Outcome: observe.Lost, Reason: "gone", Fence: 7, Sync: 1})
	tracer.Ended(observe.Ending{At: at, Kind: observe.Wait, Key: "\xff\xfe", By: me, Outcome: observe.TimedOut, Behind: observe.Party{Owner: "elsewhere"}})
	tracer.Close()
	if len(c.spans) != 3 {
		t.Fatalf("%d spans, want 3: a lock that was free causes no wait", len(c.spans))
	}
	wait, hold, binary := c.spans[0], c.spans[1], c.spans[2]
	if wait.Name != "lock wait" || wait.StartTimeUnixNano != uint64(at.Add(-2*time.Second).UnixNano()) || wait.EndTimeUnixNano != uint64(at.UnixNano()) {
		t.Errorf("%v", wait)
	}
	want := map[string]any{
		"lockproxy.key": "k", "lockproxy.owner": "me", "client.address": "10.0.0.1:5", "lockproxy.client.name": "job", "lockproxy.outcome": "granted",
		"lockproxy.fence": int64(7), "lockproxy.sync": int64(1), "lockproxy.behind.owner": "boss", "lockproxy.behind.client.name": "cron",
	}
	if diff := cmp.Diff(want, attributesOf(wait)); diff != "" {
		t.Errorf("wait (-want +got)\n%s", diff)
	}
	want = map[string]any{
		"lockproxy.key": "k", "lockproxy.owner": "me", "client.address": "10.0.0.1:5", "lockproxy.client.name": "job", "lockproxy.outcome": "lost",
		"lockproxy.reason": "gone", "lockproxy.mode": "shared", "lockproxy.fence": int64(7), "lockproxy.sync": int64(1),
	}
	if diff := cmp.Diff(want, attributesOf(hold)); diff != "" {
		t.Errorf("hold (-want +got)\n%s", diff)
	}
	if hold.Name != "lock hold" || hold.Status.Code != tracepb.Status_STATUS_CODE_ERROR || wait.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("%v, %v", hold, wait.Status)
	}
	if !bytes.Equal(wait.TraceId, hold.TraceId) || bytes.Equal(wait.TraceId, binary.TraceId) || bytes.Equal(wait.SpanId, hold.SpanId) {
		t.Error("the spans of one grant, and only these, share a trace")
	}
	if got := attributesOf(binary)["lockproxy.key"]; got != "\uFFFD" {
		t.Errorf("a key that is no text: %q", got)
	}
	if c.about["service.name"] != "lockproxy" || c.about["service.version"] != "v1" || c.about["deployment.environment"] != "test" {
		t.Errorf("%v", c.about)
	}
	if sent, lost := tracer.Counts(); sent != 3 || lost != 0 || logs.Len() != 0 {
		t.Errorf("%d sent, %d lost, %d lines in the log", sent, lost, logs.Len())
	}
}

// flood tells a tracer of more holds than it can keep. It fails if that takes long.
func flood(t *testing.T, tracer *Tracer, n int) {
	t.Helper()
	begin := time.Now()
	long := strings.Repeat("x", 1<<20)
	for range n {
		tracer.Ended(observe.Ending{At: begin, Kind: observe.Hold, Key: long, Outcome: observe.Released})
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("%d endings took %s", n, took)
	}
}

// ends expects that a tracer ends in time, with all its spans lost and few lines in the log.
func ends(t *testing.T, tracer *Tracer, logs *observer.ObservedLogs, n int64) {
	t.Helper()
	begin := time.Now()
	tracer.Close()
	if took := time.Since(begin); took > closeLimit+5*time.Second {
		t.Errorf("the end took %s", took)
	}
	if sent, lost := tracer.Counts(); sent != 0 || lost != n {
		t.Errorf("%d sent, %d lost of %d", sent, lost, n)
	}
	if n := logs.Len(); n == 0 || n > 5 {
		t.Errorf("%d lines in the log", n)
	}
	for _, line := range logs.All() {
		if size := len(line.ContextMap()["error"].(string)); line.Level != zap.WarnLevel || size > 300 {
			t.Errorf("%v", line)
		}
	}
}

func TestACollectorThatDoesNotAnswerDelaysNothing(t *testing.T) {
	for _, dead := range []bool{true, false} { // a silent one accepts connections
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if dead {
			ln.Close()
		}
		tracer, logs := start(t, "http://"+ln.Addr().String()+"/spans")
		flood(t, tracer, 20_000)
		ends(t, tracer, logs, 20_000)
	}
}

func TestACollectorThatRefusesIsLoggedBriefly(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, strings.Repeat("no ", 100_000), http.StatusForbidden)
	}))
	defer refuses.Close()
	tracer, logs := start(t, refuses.URL)
	flood(t, tracer, 5_000)
	ends(t, tracer, logs, 5_000)
}

func TestSpansAreWantedIfACollectorIsNamed(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		env      map[string]string
		want     bool
		err      error
	}{
		{},
		{endpoint: "http://x:1", want: true},
		{endpoint: "http://x:1", env: map[string]string{"OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, want: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:4318/v1/traces", "OTEL_TRACES_EXPORTER": "otlp"}, want: true},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_TRACES_EXPORTER": "none"}},
		{env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, err: errProtocol},
	} {
		t.Run("", func(t *testing.T) {
			for name, v := range c.env {
				t.Setenv(name, v)
			}
			if got, err := Wanted(c.endpoint); got != c.want || !errors.Is(err, c.err) {
				t.Errorf("%+v: %v, %v", c, got, err)
			}
		})
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://host:4318": "http://host:4318/v1/traces", "https://host/": "https://host/v1/traces", "http://host:1/a/b": "http://host:1/a/b",
		"host:4318": "", "grpc://host:4317": "", "http://": "", "": "", "http://[": "",
		"http://me:secret@h": "", "http://me:se%zsecret@h": "", "secret": "", "http://h?token=secret": "",
	} {
		got, err := spansURL(endpoint)
		if got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q is %q, %v", endpoint, got, err)
		}
	}
}

// stubExporter fails, or waits until it is given up if silent.
type stubExporter struct{ silent bool }

func (x *stubExporter) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	if x.silent {
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New(`Post "http://me:se/cr@et@proxy:1": no`)
}

func (*stubExporter) Shutdown(context.Context) error { return nil }

// A stop waits a moment for a collector, and not at all for one that has failed before.
func TestAStopDoesNotWaitForADeadCollector(t *testing.T) {
	for _, failedBefore := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			entries := logging.NewRepeats(zap.New(core), 3, time.Minute)
			life, abort := context.WithCancel(context.Background())
			to := &stubExporter{silent: !failedBefore}
			tracer := begin(resource.Empty(), &exporter{SpanExporter: to, life: life, abort: abort, note: noteTo(entries), entries: entries})
			if failedBefore {
				tracer.Ended(observe.Ending{At: time.Now(), Kind: observe.Hold, Key: "k"})
				synctest.Wait()
				if err := tracer.provider.ForceFlush(t.Context()); err != nil {
					t.Fatal(err)
				}
				to.silent = true
			}
			tracer.Ended(observe.Ending{At: time.Now(), Kind: observe.Hold, Key: "k"})
			began, want := time.Now(), closeLimit
			tracer.Close()
			if failedBefore {
				want = 0
			}
			if took := time.Since(began); took != want {
				t.Errorf("failed before: %v; the stop took %v, want %v", failedBefore, took, want)
			}
			for _, line := range logs.All() {
				if text := line.ContextMap()["error"].(string); strings.Contains(text, "cr@et") || strings.Contains(text, "me:") {
					t.Errorf("the log has the password: %s", text)
				}
			}
		})
	}
}
