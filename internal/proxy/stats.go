package proxy

import (
	"sync/atomic"

	"go.uber.org/zap"
)

// stats are counters for metrics and INFO lockproxy.
type stats struct {
	accepted atomic.Int64 // client connections
	clients  atomic.Int64 // connected now

	// Clients closed, by reason.
	rejected       atomic.Int64 // over max-clients
	handshakes     atomic.Int64 // no TLS or PROXY header, or not in time
	firstTimeouts  atomic.Int64 // no first command in time
	protocolErrors atomic.Int64
	queryLimit     atomic.Int64 // too much read and not yet parsed
	outputLimit    atomic.Int64 // too much not taken
	panics         atomic.Int64 // by a bug

	refused     atomic.Int64 // commands answered -NOUPSTREAM
	pinWaits    atomic.Int64 // sessions that had to wait for a pin
	pinTimeouts atomic.Int64 // and did not get one
	lost        atomic.Int64 // locks lost
}

// queryLimit counts and logs a client that is closed because what it has sent cannot be worked off.
func (e *env) queryLimit(client string, n int) {
	e.stats.queryLimit.Add(1)
	e.opts.Logger.Warn("client closed: query buffer limit", zap.String("client", client), zap.Int("bytes", n))
}
