package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/logging"
)

func TestEntriesHaveNoStackTrace(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		log, _ := newLogger(LogConfig{Level: "error", Format: format}, &out)
		log.Log(logging.Audit, "login failed")
		log.Error("upstream is not a Redis server")
		if lines := strings.Count(out.String(), "\n"); lines != 2 || strings.Contains(out.String(), "stacktrace") {
			t.Errorf("%s: two entries are %d lines:\n%s", format, lines, out.String())
		}
	}
}
