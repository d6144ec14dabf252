package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestSpansOfAProcessReachTheCollector has a client wait for a lock that another one releases, and a holder that is cut
// by the drain.
func TestSpansOfAProcessReachTheCollector(t *testing.T) {
	var mu sync.Mutex
	var spans []string
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var data tracepb.TracesData
		if err != nil || proto.Unmarshal(body, &data) != nil || r.Header.Get("x-token") != "secret" {
			t.Errorf("a request to %s that is none of OTLP", r.URL)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, of := range data.ResourceSpans {
			for _, s := range of.ScopeSpans[0].Spans {
				text := s.Name
				for _, kv := range s.Attributes {
					if v := kv.Value.GetStringValue(); v != "" && kv.Key != "client.address" {
						text += " " + v
					}
				}
				spans = append(spans, text)
			}
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret")
	redis := redistest.Start(t)
	p := startProcess(t, "--listen", "127.0.0.1:0", "--upstream", redis.Addr(), "--tracing-endpoint", collector.URL, "--drain-timeout", "100ms")
	var clients [2]net.Conn
	for i := range clients {
		nc, err := net.Dial("tcp", p.addr(""))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		clients[i] = nc
	}
	askLine(t, clients[0], "LOCK k OWNER a")
	if _, err := io.WriteString(clients[1], "LOCK k OWNER b\r\n"); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 20*time.Second, "b to wait", func() bool {
		if _, err := io.WriteString(clients[0], "LOCKINFO k\r\nPING\r\n"); err != nil {
			t.Fatal(err)
		}
		var info []byte
		for buf := make([]byte, 4096); !bytes.HasSuffix(info, []byte("+PONG\r\n")); {
			n, err := clients[0].Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			info = append(info, buf[:n]...)
		}
		return bytes.Contains(info, []byte("local-waiters\r\n:1\r\n"))
	})
	askLine(t, clients[0], "UNLOCK k OWNER a")
	askLine(t, clients[0], "CLIENT SETNAME job")
	askLine(t, clients[0], "TRYLOCK mine OWNER a PX 60000")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd()
	slices.Sort(spans)
	want := []string{"lock hold k a released exclusive", "lock hold k b client-gone exclusive", "lock hold mine a client-gone exclusive job", "lock wait k b granted exclusive a"}
	if diff := cmp.Diff(want, spans); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestASilentCollectorDoesNotKeepAProcess expects the proxy to end although its collector never answers.
func TestASilentCollectorDoesNotKeepAProcess(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+ln.Addr().String())
	p := startProcess(t, "--listen", "127.0.0.1:0", "--upstream", redistest.Start(t).Addr())
	dialAsk(t, p.addr(""), "LOCK k GRACE 0")
	began := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.awaitEnd()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the end took %s", took)
	}
	p.awaitLog(1, "sending spans to the collector failed")
}
