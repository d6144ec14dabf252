//go:build !linux

package process

import (
	"os/exec"
	"strconv"
	"strings"
)

// adopt does nothing: processes whose parent has ended are lost sight of.
func adopt() {}

// allProcesses lists the processes of the system.
func allProcesses() []process {
	text, _ := exec.Command("ps", "-A", "-o", "pid=,ppid=,stat=").Output()
	var all []process
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		pid, _ := strconv.Atoi(fields[0])
		parent, _ := strconv.Atoi(fields[1])
		all = append(all, process{pid: pid, parent: parent, living: !zombie(fields[2])})
	}
	return all
}
