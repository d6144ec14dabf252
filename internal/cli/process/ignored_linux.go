package process

import (
	"os"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sets is the length of a set of signals for the kernel.
const sets = 8

// wasIgnored reports whether a signal was ignored when this process began, and has it notified to c from now on.
//
// The runtime of Go has put its own handler there before the first line of this program, and keeps to itself what was
// there. But its handler of a signal that is not asked for still does what was there before: so a copy of this process
// sends the signal to itself, and lives on if it was ignored. The copy makes system calls only, as a child of fork(2)
// with several threads may.
//
//go:norace
func wasIgnored(sig unix.Signal, c chan<- os.Signal) bool {
	var handler [32]uint64 // more than a struct sigaction of the kernel has
	_, _, failed := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&handler)), sets, 0, 0)
	if failed != 0 {
		return false
	}
	signal.Ignore(sig) // the runtime does not ask for it any more
	pid, _, failed := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if pid == 0 && failed == 0 {
		_, _, _ = unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0, 0) // it leaves no core
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&handler)), 0, sets, 0, 0)
		self, _, _ := unix.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_KILL, self, uintptr(sig), 0)
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	signal.Notify(c, sig)
	if failed != 0 {
		return false
	}
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(int(pid), &status, 0, nil); err != unix.EINTR {
			return err == nil && status.Exited()
		}
	}
}
