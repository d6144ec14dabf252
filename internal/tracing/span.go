package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// record makes the span of a wait or a hold.
func record(tracer trace.Tracer, e observe.Ending) {
	ctx := context.Background()
	if e.Fence != 0 {
		ctx = context.WithValue(ctx, grantKey{}, traceOf(e.Key, e.Fence))
	}
	began := trace.WithTimestamp(e.At.Add(-e.Took))
	_, span := tracer.Start(ctx, "lock "+string(e.Kind), began, trace.WithAttributes(attributes(e)...))
	switch {
	case e.Outcome == observe.Failed, e.Outcome == observe.Lost && e.Reason != string(watchdog.ReasonExpired):
		span.SetStatus(codes.Error, e.Reason)
	}
	span.End(trace.WithTimestamp(e.At))
}

func attributes(e observe.Ending) []attribute.KeyValue {
	all := []attribute.KeyValue{
		text("lockproxy.key", e.Key), text("lockproxy.owner", e.By.Owner), text("lockproxy.outcome", e.Outcome),
	}
	for _, kv := range []attribute.KeyValue{
		text("lockproxy.mode", e.Mode), text("client.address", e.By.Addr),
		text("lockproxy.client.name", e.By.Name), text("lockproxy.reason", e.Reason),
		text("lockproxy.behind.owner", e.Behind.Owner), text("lockproxy.behind.client.name", e.Behind.Name),
	} {
		if kv.Value.AsString() != "" {
			all = append(all, kv)
		}
	}
	if e.Fence != 0 {
		all = append(all, attribute.Int64("lockproxy.fence", e.Fence))
	}
	return append(all, attribute.Int("lockproxy.sync", e.Sync))
}

// text is an attribute that a client may have chosen. A text that is not UTF-8 would keep a whole batch of spans from
// being sent.
func text(name, value string) attribute.KeyValue {
	return attribute.String(name, strings.ToValidUTF8(value, "\uFFFD"))
}

// grantKey is the key of a trace.TraceID in a context.
type grantKey struct{}

// traceOf is the trace of a grant of a lock.
func traceOf(key string, fence int64) (id trace.TraceID) {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte(key), uint64(fence)))
	copy(id[:], sum[:])
	return id
}

// ids makes the IDs of spans, and of traces without a grant.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (ids) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	t, ok := ctx.Value(grantKey{}).(trace.TraceID)
	for !ok || !t.IsValid() {
		binary.NativeEndian.PutUint64(t[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(t[8:], rand.Uint64())
		ok = true
	}
	return t, ids{}.NewSpanID(ctx, t)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(context.Context, trace.TraceID) (s trace.SpanID) {
	for !s.IsValid() {
		binary.NativeEndian.PutUint64(s[:], rand.Uint64())
	}
	return s
}
