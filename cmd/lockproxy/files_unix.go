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
	if uint64(limit.Cur) < n && uint64(limit.Max) > uint64(limit.Cur) {
		raised := limit
		raised.Cur = raised.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err == nil { // else the old limit counts
			limit = raised
		}
	}
	return c.checkFiles(uint64(limit.Cur))
}
