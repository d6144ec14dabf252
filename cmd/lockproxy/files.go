package main

import (
	"fmt"
	"syscall"
)

// ownFiles is the number of file descriptors that the process needs besides those of clients and Redis: the log,
// listeners, event loops, operators' connections, files that are read again.
const ownFiles = 128

// allowFiles makes sure that this configuration's file descriptors may be open at once.
func (c Config) allowFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("ask for the limit of file descriptors: %w", err)
	}
	soft, hard := uint64(limit.Cur), uint64(limit.Max) //nolint:unconvert // they are signed on some systems
	const perEngine = 2
	upstream := uint64(c.MaxPins + maxLogins + maxLanes + perEngine*maxLanes)
	needed := uint64(c.MaxClients) + upstream + ownFiles
	if soft < needed && hard > soft {
		limit.Cur = limit.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil { // else the old limit counts
			soft = hard
		}
	}
	if soft < needed {
		return fmt.Errorf("max-clients: %d clients and up to %d connections to Redis need %d file descriptors, "+
			"and the limit is %d (ulimit -n)", c.MaxClients, upstream, needed, soft)
	}
	return nil
}
