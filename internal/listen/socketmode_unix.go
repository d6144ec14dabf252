//go:build unix

package listen

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// limitSocketMode sets the mode that a socket's file will have when it is bound, where the system takes it from the
// socket (Linux), so that no unwanted client can connect between bind and chmod. Elsewhere it fails, and
// chmod sets the mode later.
func limitSocketMode(fd uintptr, perm fs.FileMode) { _ = unix.Fchmod(int(fd), uint32(perm.Perm())) }
