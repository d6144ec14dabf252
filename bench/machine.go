package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/bench/fleet"
)

// machine is what a result must be read with.
type machine struct {
	cpu, kernel, load, programs, libraries, commit string

	baseline string // version of the other build; "": there is none
}

func describe(programs fleet.Programs) machine {
	m := machine{cpu: "unknown processor", programs: programs.Versions(), load: firstLine("/proc/loadavg")}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.cpu = strings.TrimSpace(value)
				break
			}
		}
	}
	if programs.Baseline != "" {
		m.baseline = firstWords(programs.Baseline, "--version")
	}
	m.cpu = fmt.Sprintf("%d × %s", runtime.NumCPU(), m.cpu)
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.kernel = "Linux " + unix.ByteSliceToString(name.Release[:])
	}
	m.commit = git("rev-parse", "--short=12", "HEAD")
	if git("status", "--porcelain", "--untracked-files=no") != "" {
		m.commit += " with changes"
	}
	m.libraries = runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis", "github.com/redis/go-redis/v9":
				m.libraries += ", " + strings.TrimPrefix(dep.Path, "github.com/") + " " + dep.Version
			}
		}
	}
	return m
}

func git(args ...string) string {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// firstWords are the first line that a program prints.
func firstWords(bin, arg string) string {
	out, err := exec.Command(bin, arg).Output()
	if err != nil {
		return "of unknown version"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}
