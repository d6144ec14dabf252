//go:build unix

package main

import (
	"fmt"
	"syscall"
)

// allowFiles makes sure that this configuration's file descriptors may be open at once.
func (c Config) allowFiles() error {
	n := c.files()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("ask for the limit of file descriptors: %w", err)
	}
	soft, hard := uint64(limit.Cur), uint64(limit.Max) //nolint:unconvert // they are signed on some systems
	if soft < n && hard > soft {
		limit.Cur = limit.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil { // else the old limit counts
			soft = hard
		}
	}
	return c.checkFiles(soft)
}
