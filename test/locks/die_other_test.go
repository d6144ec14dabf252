//go:build !linux

package locks

import "syscall"

// dieWithParent is nothing here: only Linux can tie the child's life to the test binary's.
func dieWithParent() *syscall.SysProcAttr { return nil }
