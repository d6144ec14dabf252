//go:build unix

package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// Signals are passed on to the command. The terminal sends others to the group itself.
func Signals() []os.Signal {
	return []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}
}

// Terminate asks all processes of the group to end, also if they are stopped.
func (c *Command) Terminate() {
	_ = c.Signal(unix.SIGTERM)
	_ = c.Signal(unix.SIGCONT)
}

// Kill ends all processes of the group.
func (c *Command) Kill() { _ = c.Signal(unix.SIGKILL) }

// CodeOf is the exit code of a process that a signal has ended.
func CodeOf(sig os.Signal) int { return 128 + int(sig.(unix.Signal)) }
