package main

import (
	"fmt"
)

// ownFiles is the number of file descriptors that the process needs besides those of clients and Redis: the log,
// listeners, event loops, operators' connections, files that are read again.
const ownFiles = 128

// checkFiles reports a limit of open file descriptors that is too low for this configuration.
func (c Config) checkFiles(limit uint64) error {
	needed := c.files()
	if needed <= limit {
		return nil
	}
	return fmt.Errorf("max-clients: %d clients and up to %d connections to Redis need %d file descriptors, and the limit is %d (ulimit -n)",
		c.MaxClients, c.upstreamFiles(), needed, limit)
}

// files is the number of file descriptors that this configuration may need at once.
func (c Config) files() uint64 {
	return uint64(c.MaxClients) + uint64(c.upstreamFiles()) + ownFiles
}

// upstreamFiles is the largest number of connections to Redis.
func (c Config) upstreamFiles() Count {
	const perEngine = 2
	return c.MaxPins + maxLogins + c.MaxLanes + perEngine*c.MaxLanes
}
