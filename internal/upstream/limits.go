package upstream

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// roomy is a limit of Redis for the memory of one connection, in bytes, that clients who share it are not expected to
// reach.
const roomy = 1 << 30

// limits are those of Redis for one connection.
type limits struct {
	argument int64 // bytes of an argument (proto-max-bulk-len): Redis refuses a longer one, and closes the connection
	buffer   int64 // bytes of its query buffer (client-query-buffer-limit): beyond it Redis closes the connection silently
	tight    bool  // Redis is known to close connections with much output

	// downAfter is the time after which a node of a cluster takes a silent one for down (cluster-node-timeout): the
	// longest that a node has told. 0: none has.
	downAfter time.Duration
}

// defaultLimits are Redis's own defaults. They count where the proxy's user may not ask.
var defaultLimits = limits{argument: 512 << 20, buffer: 1 << 30}

// Limits asks for the limits. Settings that hurt are logged when they have changed: Redis may close connections because
// of unread replies, which many clients may share, or may evict locks when its memory is full. Every policy but
// noeviction can pick a key with a TTL, and all locks have one. A Redis that does not tell counts as one without
// limits. nil: there is no answer.
func (a *asker) Limits(ctx context.Context) *limits {
	nc, err := a.connect(ctx)
	if err != nil {
		return nil // a session that needs Redis reports that it is away
	}
	defer a.Dialer.HangUp(nc)
	var settings [4]string
	for i, name := range []string{"client-output-buffer-limit", "maxmemory-clients"} {
		if settings[i], err = a.setting(nc, name); err != nil {
			return nil
		}
	}
	memory, err := a.Dialer.Ask(nc, "INFO", "memory") // CONFIG is often refused
	if err != nil {
		return nil
	}
	settings[2] = topology.InfoField(string(memory), "maxmemory")
	settings[3] = topology.InfoField(string(memory), "maxmemory_policy")
	l := defaultLimits
	var timeout int64 // milliseconds
	for name, to := range map[string]*int64{
		"proto-max-bulk-len": &l.argument, "client-query-buffer-limit": &l.buffer, "cluster-node-timeout": &timeout,
	} {
		text, _ := a.setting(nc, name)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			*to = n
		}
	}
	a.downAfter = max(a.downAfter, time.Duration(timeout)*time.Millisecond)
	l.downAfter = a.downAfter
	l.tight = tightOutput(settings[0]) || tightTotal(settings[1])
	news := settings != a.known
	a.known = settings
	if news && evicts(settings[2], settings[3]) {
		a.Logger.Warn("redis may evict locks when its memory is full: set maxmemory-policy noeviction",
			zap.String("maxmemory", settings[2]), zap.String("maxmemory_policy", settings[3]))
	}
	if news && l.tight {
		a.Logger.Warn("redis closes connections with much unread output: "+
			"all clients of a shared connection are closed with it",
			zap.String("client-output-buffer-limit", settings[0]), zap.String("maxmemory-clients", settings[1]))
	}
	return &l
}

func evicts(limit, policy string) bool {
	return limit != "" && limit != "0" && policy != "" && policy != "noeviction"
}

// setting asks for one setting. "": the user has no right to ask, or an older Redis does not have it.
func (a *asker) setting(nc net.Conn, name string) (string, error) {
	b, err := a.Dialer.Ask(nc, "CONFIG", "GET", name)
	if err != nil {
		return "", err
	}
	v, _, err := resp.Decode(b)
	if err != nil || v.IsError() || len(v.Elems) < 2 {
		return "", nil //nolint:nilerr // see above
	}
	return string(v.Elems[1].Str), nil
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
