package tracing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// client posts spans to a collector by OTLP over HTTP, as OpenTelemetry's variables say. The library's own client of
// that protocol has all of gRPC in the program, which is 3 MB and never spoken.
//
// Source: https://opentelemetry.io/docs/specs/otlp/#otlphttp and
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
type client struct {
	url  string
	head http.Header
	gzip bool
	http *http.Client
}

var _ otlptrace.Client = (*client)(nil)

const (
	requestLimit = 10 * time.Second // of one attempt, unless OTEL_EXPORTER_OTLP_TIMEOUT names another
	retryLimit   = time.Minute      // of all attempts to send a batch
	pauseLimit   = 60               // seconds of a pause that a collector asks for
	answerLimit  = 1 << 12          // bytes that are read of what a collector says
)

// newClient returns a client that posts to that URL. Empty: OpenTelemetry's variables name it. It calls note for a
// variable that cannot be read.
func newClient(endpoint string, note func(error)) (*client, error) {
	to, err := postsTo(endpoint)
	if err != nil && endpoint != "" {
		return nil, err
	}
	if err != nil { // the specification wants a warning, and the default
		note(err)
		to = "http://localhost:4318/v1/traces"
	}
	c := &client{url: to, head: http.Header{}, gzip: variable("COMPRESSION") == "gzip"}
	for pair := range strings.SplitSeq(variable("HEADERS"), ",") {
		name, value, named := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !named || err != nil || name == "" || strings.ContainsAny(name, ": ") {
			if strings.TrimSpace(pair) != "" {
				note(errors.New("OTEL_EXPORTER_OTLP_HEADERS: an entry is not name=value")) // it may be a credential
			}
			continue
		}
		c.head.Set(name, value)
	}
	c.head.Set("Content-Type", "application/x-protobuf")
	if c.gzip {
		c.head.Set("Content-Encoding", "gzip")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = certificates(); err != nil {
		note(err)
	}
	c.http = &http.Client{
		Transport: transport, Timeout: requestLimit,
		// Headers with credentials are for the collector that the operator has named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if text := variable("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 0 {
			note(fmt.Errorf("OTEL_EXPORTER_OTLP_TIMEOUT: %q is no number of milliseconds", text))
		} else {
			c.http.Timeout = time.Duration(ms) * time.Millisecond
		}
	}
	return c, nil
}

// postsTo is the URL to which spans are posted. An empty endpoint is that of the variables.
func postsTo(endpoint string) (string, error) {
	traces, all := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	switch {
	case endpoint != "":
		return spansURL(endpoint)
	case traces != "": // it is the whole URL, whatever its path
		_, err := spansURL(traces)
		return traces, err
	}
	return spansURL(strings.TrimSuffix(all, "/") + "/v1/traces")
}

// variable is one of the exporter's variables: that of traces, or else that of all signals.
func variable(name string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), os.Getenv("OTEL_EXPORTER_OTLP_"+name))
}

// certificates are those that the variables name, for https; nil: the system's authorities, and none of our own.
func certificates() (*tls.Config, error) {
	authority, own, key := variable("CERTIFICATE"), variable("CLIENT_CERTIFICATE"), variable("CLIENT_KEY")
	var config tls.Config
	if authority != "" {
		pem, err := os.ReadFile(authority)
		if err != nil {
			return nil, err
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", authority)
		}
	}
	if own != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(own, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &config, nil
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. It asks again for a minute at most if the collector says that it has no
// time, after the pause that the collector asks for.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}) // on the wire as ExportTraceServiceRequest
	if err != nil {
		return err
	}
	if c.gzip {
		var short bytes.Buffer
		w := gzip.NewWriter(&short)
		_, _ = w.Write(body) // a buffer takes all
		_ = w.Close()
		body = short.Bytes()
	}
	post := func() (struct{}, error) { return struct{}{}, c.post(ctx, body) }
	_, err = backoff.Retry(ctx, post, backoff.WithMaxElapsedTime(retryLimit))
	return err
}

// post makes one attempt. Its error is permanent unless the collector asks for another one, or has not answered in
// time: an operator learns at once that no collector is there.
func (c *client) post(ctx context.Context, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	request.Header = c.head.Clone()
	answer, err := c.http.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok && !failed.Timeout() {
		return backoff.Permanent(err)
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, answerLimit))
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")); seconds > 0 { // else the usual pause
			return fmt.Errorf("%s: %w", answer.Status, backoff.RetryAfter(min(seconds, pauseLimit)))
		}
		return errors.New(answer.Status)
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return backoff.Permanent(fmt.Errorf("%s: %s: a redirect is not followed", c.url, answer.Status))
	}
	return backoff.Permanent(fmt.Errorf("%s: %s: %s", c.url, answer.Status, bytes.TrimSpace(said)))
}

// errProtocol says that OpenTelemetry's variables name a collector, and a protocol that this package does not speak.
var errProtocol = errors.New("the environment asks for OTLP over gRPC, which lockproxy does not speak: " +
	"no spans are sent; set tracing.endpoint to the collector's HTTP port")

// Wanted reports whether spans are to be sent: the endpoint is named, or OpenTelemetry's variables name a collector.
func Wanted(endpoint string) (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	if endpoint != "" {
		return true, nil
	}
	exporters := os.Getenv("OTEL_TRACES_EXPORTER") // a list; empty: OTLP
	if variable("ENDPOINT") == "" || exporters != "" && !strings.Contains(exporters, "otlp") {
		return false, nil
	}
	if variable("PROTOCOL") == "grpc" {
		return false, errProtocol
	}
	return true, nil
}
