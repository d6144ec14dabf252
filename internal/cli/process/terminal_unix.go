//go:build unix

package process

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process.
type terminal struct {
	fd   int
	ours bool // this process is in its foreground
}

// openTerminal looks at standard input.
func openTerminal() terminal {
	fd := int(os.Stdin.Fd())
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	t := terminal{fd: fd, ours: err == nil && group == unix.Getpgrp()}
	if t.ours {
		signal.Ignore(unix.SIGTTOU) // or taking the terminal back would stop this process
	}
	return t
}

// take puts this process into the foreground.
func (t terminal) take() { t.give(unix.Getpgrp()) }

// give puts a process group into the foreground.
func (t terminal) give(group int) {
	if t.ours {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
	}
}
