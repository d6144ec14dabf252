package tracing

import (
	"errors"
	"os"
	"strings"
)

// ErrProtocol says that OpenTelemetry's variables name a collector, and a protocol that this package does not speak.
var ErrProtocol = errors.New("the environment asks for OTLP over gRPC, which lockproxy does not speak: no spans are sent; set tracing.endpoint to the collector's HTTP port")

// Wanted reports whether spans are to be sent: the endpoint is named, or OpenTelemetry's variables name a collector.
func Wanted(endpoint string) (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	if endpoint != "" {
		return true, nil
	}
	if named := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"); named == "" || !exports(os.Getenv("OTEL_TRACES_EXPORTER")) {
		return false, nil
	}
	if first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc" {
		return false, ErrProtocol
	}
	return true, nil
}

// exports reports whether a list of exporters has OTLP, as it has if it is empty.
func exports(list string) bool { return list == "" || strings.Contains(list, "otlp") }

// first is the value of the first of these variables that is set.
func first(names ...string) string {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}
