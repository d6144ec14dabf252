package process

import "golang.org/x/sys/unix"

// terminal is the controlling terminal of this process, as a file; negative: there is none.
type terminal int

func openTerminal() terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return terminal(fd)
}

// group is the process group for a command; 0: one of its own. At a terminal it is that of this process, because a
// shell controls its jobs, and a terminal its foreground, by groups.
func (t terminal) group() int {
	if t < 0 {
		return 0
	}
	return unix.Getpgrp()
}

// foreground reports whether the terminal sends its signals to the group of this process.
func (t terminal) foreground() bool {
	if t < 0 {
		return false
	}
	group, err := unix.IoctlGetInt(int(t), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
