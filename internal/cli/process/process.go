// Package process runs a command that must not outlive its supervisor, nor any process that the command has started.
//
//	supervisor ◄── socket ──► guard ── starts ──► command ──► its processes
//
// The guard is the parent of the command. When the socket ends without a farewell, the supervisor has died, and the
// guard kills all processes of the command. On Linux both adopt processes whose parent has ended, so none is lost sight
// of, and the supervisor has the command as a child of its own when the guard has died.
//
// With a terminal, the command is in the process group of its supervisor. So the shell's job control, Ctrl-C and Ctrl-Z
// reach both, as they reach flock(1) and its command. Without a terminal, the command leads a group of its own.
//
// Goroutines: Start starts one, which lives until the command has ended. A guard has two, one that collects ended
// processes, and one that sees the end of the socket; both end with the process.
package process

import (
	"errors"
	"os"
	"os/exec"
	"strings"
)

// Exit is how a command has ended.
type Exit struct {
	Code   int       // its exit code, or 128 and the number of the signal
	Signal os.Signal // nil: none has ended it
}

// Options of a command.
type Options struct {
	Path string   // of the program
	Args []string // with the program's name as the first one
	Env  []string

	// Guard is this program's arguments for a process that calls Guard. The number of a socket is added as the last
	// one.
	Guard []string
	// Note is for Guard's caller.
	Note []byte
}

// Find finds the file of a program as execvp(3) does: in PATH, in which an empty directory and "." are the current one.
func Find(name string) (string, error) {
	file, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrDot) { // Go takes no programs from there by itself
		err = nil
	}
	if err == nil && !strings.Contains(file, "/") { // to the shell of a script it may look like an option
		file = "./" + file
	}
	return file, err
}
