package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of those among its descendants whose parent has ended.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

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
		before, _, _ := strings.Cut(string(text), " (")
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, err := strconv.Atoi(before)
		if err != nil || len(fields) < 18 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		living := !zombie(fields[0]) || fields[17] != "1" // the first of its threads has ended, and others have not
		all = append(all, process{pid: pid, parent: parent, living: living})
	}
	return all
}
