package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of those among its descendants whose parent has ended.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// guardName is the name of a guard in lists of processes, of at most 15 bytes.
const guardName = "lockproxy-guard"

// beGuard lets other guards see that this process is one.
func beGuard() { _ = os.WriteFile("/proc/self/comm", []byte(guardName), 0) }

// allProcesses lists the processes of the system.
func allProcesses() []process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var all []process
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …, and a name may have brackets.
		before, name, _ := strings.Cut(string(text), " (")
		end := strings.LastIndexByte(name, ')')
		if end < 0 {
			continue
		}
		fields := strings.Fields(name[end+1:])
		pid, err := strconv.Atoi(before)
		if err != nil || len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		all = append(all, process{pid: pid, parent: parent, living: !zombie(fields[0]), guard: name[:end] == guardName})
	}
	return all
}
