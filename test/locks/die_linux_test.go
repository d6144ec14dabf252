package locks

import "syscall"

// dieWithParent makes the kernel kill the child when the test binary dies, even by SIGKILL.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
