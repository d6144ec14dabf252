// Package tracing sends waits for locks and holds of locks to an OpenTelemetry collector, as spans, by OTLP over HTTP.
//
//	observe.Ending ──► Ended: queue, or dropped ──► run ──► spans ──► the library's batches ──► exporter ──► collector
//
// A span is made when the wait or the hold has ended, with its times. So a wait or a hold in progress costs nothing.
// The spans of one grant share a trace, whose ID is made of lock and fence: also spans of different proxies.
//
// Goroutines: Tracer.run makes spans of waits and holds that have ended; the library's batch processor exports them.
//
// Invariants:
//   - No call blocks but Close, and that is bounded. Endings beyond the queue are dropped and counted.
//   - A collector that fails has a few lines in the log for each period.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// Options of a Tracer.
type Options struct {
	// Endpoint is the URL to which spans are posted, or the URL of a collector without a path. Empty: the library's
	// variables name it.
	Endpoint string

	Version string
	Logger  *zap.Logger
}

// CheckEndpoint reports why a collector cannot have that URL.
func CheckEndpoint(endpoint string) error {
	_, err := spansURL(endpoint)
	return err
}

// spansURL is the URL to which spans are posted. Its errors do not quote the endpoint: it may hold a password.
func spansURL(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", errors.New("it is no URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("it is not like http://host:4318 or https://host/path")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// credentials matches those of URLs in a text, for example of the HTTP proxy that the environment names.
var credentials = regexp.MustCompile(`(?s)//.*@`)

// queueLen is how many waits and holds may stand before the library's queue of spans, which has as many.
const queueLen = 2048

// closeLimit is the time that the last spans have to reach the collector.
const closeLimit = 500 * time.Millisecond

// Tracer is an observe.Observer that sends a span of each wait and hold. Its methods may be called from any goroutine.
type Tracer struct {
	spans    chan observe.Ending // never closed
	stop     chan struct{}       // closed by Close
	stopped  chan struct{}       // closed when run has returned
	close    sync.Once
	provider *sdk.TracerProvider
	exporter *exporter
	dropped  atomic.Int64
}

var _ observe.Observer = (*Tracer)(nil)

// New starts a tracer. The caller closes it when nothing ends any more.
func New(o Options) (*Tracer, error) {
	entries := logging.NewRepeats(o.Logger, 3, time.Minute)
	note := noteTo(entries)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(note))
	// It logs settings that the library cannot read.
	otel.SetLogger(funcr.New(func(_, args string) { note(errors.New(args)) }, funcr.Options{}))
	to, err := newClient(o.Endpoint, note)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	life, abort := context.WithCancel(context.Background())
	out, err := otlptrace.New(life, to)
	if err != nil {
		abort()
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about, err := resource.New(life,
		resource.WithAttributes(
			attribute.String("service.name", "lockproxy"), attribute.String("service.version", o.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		note(err)
	}
	return begin(about, &exporter{SpanExporter: out, life: life, abort: abort, note: note, entries: entries}), nil
}

// noteTo returns a function that logs why spans were not sent.
func noteTo(entries *logging.Repeats) func(error) {
	return func(err error) {
		text := credentials.ReplaceAllString(err.Error(), "//[hidden]@") // it may have all that the collector has said
		entries.Write(zap.WarnLevel, "sending spans to the collector failed", "",
			zap.String("error", text[:min(len(text), 300)]))
	}
}

// begin returns a tracer that runs.
func begin(about *resource.Resource, x *exporter) *Tracer {
	t := &Tracer{
		spans: make(chan observe.Ending, queueLen), stop: make(chan struct{}), stopped: make(chan struct{}), exporter: x,
	}
	t.provider = sdk.NewTracerProvider(
		sdk.WithResource(about), sdk.WithIDGenerator(ids{}), sdk.WithBatcher(x, sdk.WithBlocking()))
	go t.run()
	return t
}

// Wants implements observe.Observer. All waits and holds are of interest.
func (t *Tracer) Wants(observe.Kind, time.Duration) bool { return true }

// Ended implements observe.Observer.
func (t *Tracer) Ended(e observe.Ending) {
	if e.Kind == observe.Wait && e.Behind.Owner == "" {
		return // the client did not have to wait
	}
	select {
	case t.spans <- e.Shortened():
	default:
		t.dropped.Add(1)
	}
}

// Counts are the spans that a collector has taken, and those that it has not, or that were dropped because too many
// waited for it.
func (t *Tracer) Counts() (sent, lost int64) {
	return t.exporter.sent.Load(), t.exporter.failed.Load() + t.dropped.Load()
}

// run makes spans until stop is closed and the queue is empty.
func (t *Tracer) run() {
	defer close(t.stopped)
	tracer := t.provider.Tracer("github.com/lockproxy/lockproxy")
	for {
		select {
		case e := <-t.spans:
			record(tracer, e)
			continue
		default:
		}
		select {
		case e := <-t.spans:
			record(tracer, e)
		case <-t.stop:
			if len(t.spans) == 0 {
				return
			}
		}
	}
}

// Close sends the remaining spans, for a limited time. If the collector has not taken the last ones, it gives up at
// once.
func (t *Tracer) Close() {
	t.close.Do(func() {
		limit := closeLimit
		if t.exporter.failing.Load() {
			limit = 0
		}
		late := time.AfterFunc(limit, t.exporter.abort)
		defer late.Stop()
		close(t.stop)
		<-t.stopped
		_ = t.provider.Shutdown(context.Background()) // its exporter reports its errors itself
		t.exporter.abort()
		t.exporter.entries.Flush()
	})
}

// exporter counts and reports what becomes of spans.
type exporter struct {
	sdk.SpanExporter
	life    context.Context // of all its requests
	abort   context.CancelFunc
	note    func(error)
	entries *logging.Repeats

	sent, failed atomic.Int64
	failing      atomic.Bool // the last batch has failed
}

// ExportSpans implements sdk.SpanExporter.
func (x *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.life, cancel)()
	err := x.SpanExporter.ExportSpans(ctx, spans)
	x.failing.Store(err != nil)
	if err != nil {
		x.failed.Add(int64(len(spans)))
		x.note(err)
		return nil
	}
	x.sent.Add(int64(len(spans)))
	return nil
}
