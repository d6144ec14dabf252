package questions

import (
	"context"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// roomy is a limit of Redis for the memory of one connection, in bytes, that clients who share it are not expected to reach.
const roomy = 1 << 30

// Tight finds out whether Redis closes connections because of unread replies. Many clients may share such a connection. It logs each
// setting once. A Redis that does not tell its limits counts as one without limits. Without an answer, nothing is known.
func (a *Asker) Tight(ctx context.Context) (tight, known bool) {
	nc, err := a.connect(ctx)
	if err != nil {
		return false, false // a session that needs Redis reports that it is away
	}
	defer a.Dialer.HangUp(nc)
	var settings [2]string
	for i, name := range []string{"client-output-buffer-limit", "maxmemory-clients"} {
		b, err := a.Dialer.Ask(nc, "CONFIG", "GET", name)
		if err != nil {
			return false, false
		}
		v, _, err := resp.Decode(b)
		if err != nil || v.IsError() || len(v.Elems) < 2 {
			continue // no right to ask, or an older Redis without the setting
		}
		settings[i] = string(v.Elems[1].Str)
	}
	tight = tightOutput(settings[0]) || tightTotal(settings[1])
	if tight && settings != a.limits {
		a.Logger.Warn("redis closes connections whose replies take much memory, and all clients that share one lose theirs",
			zap.String("client-output-buffer-limit", settings[0]), zap.String("maxmemory-clients", settings[1]))
	}
	a.limits = settings
	return tight, true
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
