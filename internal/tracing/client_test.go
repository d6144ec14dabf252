package tracing

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// theSpans is what the tests send.
var theSpans = []*tracepb.ResourceSpans{{SchemaUrl: "mine"}}

// upload sends theSpans to the collector that the environment names.
func upload(t *testing.T) (noted []error, err error) {
	t.Helper()
	c, err := newClient("", func(err error) { noted = append(noted, err) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop(t.Context())
	err = c.UploadTraces(t.Context(), theSpans)
	return noted, err
}

func TestTheVariablesSayHowSpansAreSent(t *testing.T) {
	var path string
	var head http.Header
	var got tracepb.TracesData
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		path, head = r.URL.Path, r.Header
		body, err := io.ReadAll(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			t.Error("a body that is not compressed says that it is")
		}
		if err != nil || proto.Unmarshal(body, &got) != nil {
			t.Errorf("%q, %v", body, err)
		}
	}))
	server.StartTLS()
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", authority)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-other=1")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-token = a%20secret,x-b=2")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
	for variable, want := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "/at/v1/traces", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "/at",
	} {
		t.Setenv(variable, server.URL+"/at")
		if noted, err := upload(t); err != nil || len(noted) != 1 {
			t.Errorf("%v, noted %v", err, noted)
		}
		if path != want || head.Get("x-token") != "a secret" || head.Get("x-b") != "2" || head.Get("x-other") != "" || len(got.ResourceSpans) != 1 {
			t.Errorf("%s: %s, %v, %v", variable, path, head, &got)
		}
		t.Setenv(variable, "")
	}
}

func TestSpansAreCompressed(t *testing.T) {
	var got tracepb.TracesData
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err != nil || r.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%v, %v", err, r.Header)
			return
		}
		if text, err := io.ReadAll(body); err != nil || proto.Unmarshal(text, &got) != nil {
			t.Errorf("%q, %v", text, err)
		}
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	if noted, err := upload(t); err != nil || noted != nil || len(got.ResourceSpans) != 1 {
		t.Errorf("%v, noted %v, %v", err, noted, &got)
	}
}

// A collector that has no time is asked again; one that refuses is not.
func TestSpansAreSentAgain(t *testing.T) {
	for status, want := range map[int]int{
		http.StatusServiceUnavailable: 2, http.StatusTooManyRequests: 2, http.StatusForbidden: 1, http.StatusInternalServerError: 1,
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if asked++; len(body) == 0 {
				t.Error("nothing was sent")
			}
			if asked == 1 {
				w.WriteHeader(status)
			}
		}))
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
		_, err := upload(t)
		server.Close()
		if asked != want || (err == nil) != (want == 2) {
			t.Errorf("%d: asked %d times, %v", status, asked, err)
		}
	}
}

// The pause that a collector asks for is kept.
func TestTheCollectorNamesThePause(t *testing.T) {
	var asked []time.Time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked = append(asked, time.Now()); len(asked) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	if _, err := upload(t); err != nil || len(asked) != 2 || asked[1].Sub(asked[0]) < time.Second {
		t.Errorf("%v, asked at %v", err, asked)
	}
}

func TestAWrongVariableLeavesTheDefault(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
	var noted []error
	c, err := newClient("", func(err error) { noted = append(noted, err) })
	if err != nil || len(noted) != 1 || c.url != "http://localhost:4318/v1/traces" {
		t.Errorf("%v, noted %v, %+v", err, noted, c)
	}
	if _, err := newClient("collector:4318", nil); err == nil {
		t.Error("a wrong setting is an error")
	}
}

// An operator learns at once that no collector is there.
func TestACollectorThatIsNotThereIsNotAskedAgain(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	ctx, cancel := context.WithTimeout(t.Context(), retryLimit/3)
	defer cancel()
	c, err := newClient("", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.UploadTraces(ctx, theSpans); err == nil || ctx.Err() != nil {
		t.Errorf("%v, %v", err, ctx.Err())
	}
}

// The headers are for the named collector only, and a redirect may have a password.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect is followed") }))
	defer other.Close()
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(other.URL, "//", "//me:secret@", 1), status)
		}))
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
		_, err := upload(t)
		server.Close()
		if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "not followed") {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestAWrongHeaderIsNotQuoted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	for _, headers := range []string{"secret", "Authorization: Bearer secret", "Authorization: secret=", "x=%zsecret"} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
		if noted, err := upload(t); err != nil || len(noted) != 1 || strings.Contains(noted[0].Error(), "secret") {
			t.Errorf("%q: noted %v, %v", headers, noted, err)
		}
	}
}
