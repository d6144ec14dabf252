package redistest

import "syscall"

// processAttributes make the kernel kill the server when the test binary dies, even by SIGKILL.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
