package upstream

import (
	"context"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"lockproxy/internal/resp"
)

// roomy is a limit of Redis for the memory of one connection, in bytes, that clients who share it are not expected to reach.
const roomy = 1 << 30

// lookAtLimits finds out whether Redis closes connections because of unread replies. Many clients may share such a connection. It logs each
// setting once. A Redis that does not tell its limits counts as one without limits.
func (u *Upstream) lookAtLimits(ctx context.Context) {
	nc, err := u.dial(ctx, u.Own())
	if err != nil {
		return // a session that needs Redis reports that it is away
	}
	defer u.hangUp(nc)
	var settings [2]string
	for i, name := range []string{"client-output-buffer-limit", "maxmemory-clients"} {
		b, err := u.ask(nc, "CONFIG", "GET", name)
		if err != nil {
			return
		}
		v, _, err := resp.Decode(b)
		if err != nil || v.IsError() || len(v.Elems) < 2 {
			continue // no right to ask, or an older Redis without the setting
		}
		settings[i] = string(v.Elems[1].Str)
	}
	tight := tightOutput(settings[0]) || tightTotal(settings[1])
	u.tight.Store(tight)
	if tight && settings != u.limits {
		u.opts.Logger.Warn("redis closes connections whose replies take much memory, and all clients that share one lose theirs",
			zap.String("client-output-buffer-limit", settings[0]), zap.String("maxmemory-clients", settings[1]))
	}
	u.limits = settings
}

// tightOutput reads the limits of ordinary clients: "normal hard soft seconds slave …".
func tightOutput(setting string) bool {
	words := strings.Fields(setting)
	for i, class := range words {
		if class == "normal" && i+2 < len(words) {
			return tightBytes(words[i+1]) || tightBytes(words[i+2])
		}
	}
	return false
}

// tightTotal reads a limit for all clients together, which is bytes, or a share of maxmemory.
func tightTotal(setting string) bool {
	return strings.HasSuffix(setting, "%") && setting != "0%" || tightBytes(setting)
}

func tightBytes(s string) bool {
	n, err := strconv.ParseInt(s, 10, 64)
	return err == nil && n > 0 && n < roomy
}

// Tight reports whether Redis is known to close connections with much output.
func (u *Upstream) Tight() bool { return u.tight.Load() }
