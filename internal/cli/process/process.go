// Package process runs a command that must not outlive its supervisor, nor any process that the command has started.
//
//	supervisor ──Start──► command, the first of a process group of its own
//	     └── pipe ──► guard: a process in a session of its own; it kills the group when the pipe ends
//
// The group gets the terminal if the supervisor has it. If the group is stopped there (Ctrl-Z), the supervisor stops too, so that the
// shell's job control works. On Linux the command also gets SIGKILL from the system when the supervisor dies.
//
// Goroutines: Start starts one, tied to a thread, which lives until the command has ended.
package process

import (
	"errors"
	"os"
)

// Exit is how a command has ended.
type Exit struct {
	Code   int // its exit code, or 128 and the number of the signal
	Signal os.Signal
}

// Options of a command.
type Options struct {
	Path string   // of the program
	Args []string // with the program's name as the first one
	Env  []string

	// Guard is the program and the arguments of a process that calls AwaitOrphan with its standard input.
	Guard []string
	// Note is for AwaitOrphan's caller.
	Note []byte

	// MayGoOn is asked before a stopped command is continued; false: it is killed instead. It is called on a goroutine of Start.
	MayGoOn func() bool
}

// ErrUnsupported says that this system has no process groups as Unix has.
var ErrUnsupported = errors.New("commands cannot be run under a lock on this system")
