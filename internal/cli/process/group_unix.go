//go:build unix && !linux

package process

import "syscall"

// dieWithParent leaves the command to the guard.
func dieWithParent(*syscall.SysProcAttr) {}

// living reports whether the group has processes.
func living(group int) bool { return killed(group) }
