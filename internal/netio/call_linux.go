package netio

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The runtime gives the processor of a goroutine in a system call to another thread after some microseconds. It is
// right about calls that wait. A call on a socket that does not block only computes, for about as long: then threads
// take the processors from each other, and each change costs more than the call. So the runtime is not told of such
// calls, except for large writes: they would delay a collection of garbage.

// quiet is the largest number of bytes of a write of which the runtime is not told.
const quiet = 64 << 10

// WriteFD writes to a socket that does not block. It returns the number of bytes that the socket has taken.
func WriteFD(fd int, b []byte) (int, error) {
	if len(b) == 0 || len(b) > quiet {
		return unix.Write(fd, b)
	}
	return result(unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))))
}

// ReadFD reads from a socket that does not block. b is not empty.
func ReadFD(fd int, b []byte) (int, error) {
	return result(unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))))
}

func result(n, _ uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
