package sim

import (
	"syscall"
	"time"
)

// cpuTime is the time for which the process has computed. A rate by it does not say how much else the machine has to
// do.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
