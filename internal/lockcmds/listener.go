package lockcmds

import (
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// listener is the receiver of messages: those of locks are for waiters, and those of grants that were ended by force,
// through any proxy, for holders.
//
// A message is only a reason to look, because every client with the right may publish.
type listener struct {
	e *Engine
}

// Confirmed implements redislink.Listener.
func (l listener) Confirmed(channel string) {
	if channel != script.ForcedChannel {
		l.e.step(func(t *table.Table) { t.Subscribed(channel) })
	}
}

// Published implements redislink.Listener.
func (l listener) Published(channel, text string) {
	if channel != script.ForcedChannel {
		l.e.step(func(t *table.Table) { t.Published(channel) })
		return
	}
	if m, ok := script.ReadForced(text); ok {
		l.e.look(m)
	}
}

// Refused implements redislink.Listener.
func (l listener) Refused(channel string, reason redislink.Refusal) {
	if channel != script.ForcedChannel {
		l.e.step(func(t *table.Table) { t.SubscriptionRefused(channel, reason) })
		return
	}
	l.e.opts.Logger.Debug("the end of locks by force is not heard of", zap.Error(reason))
}
