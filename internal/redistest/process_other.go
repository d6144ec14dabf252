//go:build !linux

package redistest

import "syscall"

// processAttributes are none here: only Linux can tie the server's life to the test binary's.
func processAttributes() *syscall.SysProcAttr { return nil }
