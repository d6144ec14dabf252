package upstream

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
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
}

// defaultLimits are Redis's own defaults. They count where the proxy's user may not ask.
var defaultLimits = limits{argument: 512 << 20, buffer: 1 << 30}

// Limits asks for the limits. Redis may close connections because of unread replies, which many clients may share: each
// such setting is logged once. A Redis that does not tell its limits counts as one without. nil: there is no answer.
func (a *asker) Limits(ctx context.Context) *limits {
	nc, err := a.connect(ctx)
	if err != nil {
		return nil // a session that needs Redis reports that it is away
	}
	defer a.Dialer.HangUp(nc)
	var settings [2]string
	for i, name := range []string{"client-output-buffer-limit", "maxmemory-clients"} {
		if settings[i], err = a.setting(nc, name); err != nil {
			return nil
		}
	}
	l := defaultLimits
	for name, to := range map[string]*int64{"proto-max-bulk-len": &l.argument, "client-query-buffer-limit": &l.buffer} {
		text, _ := a.setting(nc, name)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			*to = n
		}
	}
	l.tight = tightOutput(settings[0]) || tightTotal(settings[1])
	if l.tight && settings != a.known {
		a.Logger.Warn("redis closes connections with much unread output: "+
			"all clients of a shared connection are closed with it",
			zap.String("client-output-buffer-limit", settings[0]), zap.String("maxmemory-clients", settings[1]))
	}
	a.known = settings
	return &l
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

// timeoutsAtOnce is the number of nodes that NodeTimeout asks, and timeoutsLimit the time that it takes at most.
const timeoutsAtOnce, timeoutsLimit = 3, time.Second

// NodeTimeout asks some nodes of a cluster, others at each call, for the time after which they take a silent node for
// down. They may differ: it returns the longest time of those that are known. Nodes for which skip is true are not
// asked. 0: none has told.
func (a *asker) NodeTimeout(
	ctx context.Context, nodes []topology.Node, skip func(topology.Node) bool,
) (longest time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeoutsLimit)
	defer cancel()
	known := make(map[topology.Node]time.Duration, len(nodes))
	for _, at := range nodes {
		known[at] = a.timeouts[at]
	}
	for range min(timeoutsAtOnce, len(nodes)) {
		a.turn++
		at := nodes[a.turn%len(nodes)]
		if skip(at) {
			continue
		}
		if d := a.nodeTimeout(ctx, at); d != 0 {
			known[at] = d
		}
	}
	a.timeouts = known
	for _, d := range known {
		longest = max(longest, d)
	}
	return longest
}

func (a *asker) nodeTimeout(ctx context.Context, at topology.Node) time.Duration {
	nc, err := a.Dialer.Dial(ctx, dial.Target{At: at, ID: a.Own})
	if err != nil {
		return 0 // a session that needs Redis reports that it is away
	}
	defer a.Dialer.HangUp(nc)
	text, err := a.setting(nc, "cluster-node-timeout")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 32) // milliseconds
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Millisecond
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
