package upstream

import (
	"context"
	"strings"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// WarnOfEviction logs if Redis may evict locks when its memory is full: every policy but noeviction can pick a key with
// a TTL, and all locks have one. It asks INFO, since CONFIG is often refused.
func (a *asker) WarnOfEviction(ctx context.Context) {
	nc, err := a.connect(ctx)
	if err != nil {
		return // a session that needs Redis reports that it is away
	}
	defer a.Dialer.HangUp(nc)
	b, err := a.Dialer.Ask(nc, "INFO", "memory")
	if err != nil {
		return
	}
	v, _, err := resp.Decode(b)
	if err != nil || v.IsError() {
		return // not allowed to know
	}
	if limit, policy := infoField(v.Str, "maxmemory"), infoField(v.Str, "maxmemory_policy"); evicts(limit, policy) {
		a.Logger.Warn("redis may evict locks when its memory is full: set maxmemory-policy noeviction",
			zap.String("maxmemory", limit), zap.String("maxmemory_policy", policy))
	}
}

func evicts(limit, policy string) bool {
	return limit != "" && limit != "0" && policy != "" && policy != "noeviction"
}

// infoField is one field of INFO's text; "" if it is not there.
func infoField(info []byte, name string) string {
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
