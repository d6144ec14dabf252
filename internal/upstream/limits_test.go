package upstream

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestSmallLimitsOfConnectionsAreWarnedOf(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"a hard limit", []string{"--client-output-buffer-limit", "normal 32mb 0 0"}, 1},
		{"a soft limit", []string{"--client-output-buffer-limit", "normal 0 16mb 60"}, 1},
		{"a limit for all", []string{"--maxmemory-clients", "100mb"}, 1},
		{"a share for all", []string{"--maxmemory-clients", "5%"}, 1},
		{"the defaults", nil, 0},
		{"a large limit", []string{"--client-output-buffer-limit", "normal 2gb 0 0"}, 0},
		{"nobody may know", []string{"--client-output-buffer-limit", "normal 1mb 0 0", "--rename-command", "CONFIG", "hidden"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			core, logs := observer.New(zap.WarnLevel)
			u := start(t, Options{Addr: redistest.Start(t, c.args...).Addr(), Logger: zap.New(core), authPeriod: 10 * time.Millisecond})
			redistest.Eventually(t, 10*time.Second, "redis has been looked at", func() bool { ok, _ := u.Ready(); return ok })
			if got := logs.FilterMessageSnippet("closes connections").Len(); got != c.want || u.Tight() != (c.want > 0) {
				t.Errorf("%d warnings, want %d; tight: %v", got, c.want, u.Tight())
			}
		})
	}
}
