package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// userHZ is the unit of the times in /proc/<pid>/stat: fixed at 100 on the systems that Go runs on.
const userHZ = 100

// CPU is the processor time that a process has used. The scheduler's own count is exact to the ns, but a thread that
// has ended takes its part along; the older count in ticks includes those. The larger one is right.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	// Fields are counted from behind the name, which may hold blanks: utime is the 14th field of all.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("processor time: /proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time: %w", err)
		}
		ticks += n
	}
	total := time.Duration(ticks) * time.Second / userHZ

	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	var exact time.Duration
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended, or the kernel keeps no such count
		}
		ran, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time: %w", err)
		}
		exact += time.Duration(n)
	}
	if total-exact > 2*time.Second/userHZ {
		return total, nil
	}
	return exact, nil
}

// SelfCPU is the processor time that this process has used.
func SelfCPU() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Resident is the memory of a process in bytes that is not swapped out.
func Resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		value, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
		if err != nil {
			return 0, fmt.Errorf("memory: %w", err)
		}
		return kib * 1024, nil
	}
	return 0, fmt.Errorf("memory: process %d has no VmRSS", pid)
}

// RaiseFileLimit lifts the number of files that this process and its children may open as far as it may go, and returns
// it.
func RaiseFileLimit() (int, error) {
	const wanted = 1 << 17
	limit := unix.Rlimit{Cur: wanted, Max: wanted}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) == nil { // only root may go beyond the hard limit
		return wanted, nil
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("file limit: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("file limit: %w", err)
	}
	return int(limit.Cur), nil
}
