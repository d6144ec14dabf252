package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Both are set at build time with -ldflags "-X main.version=... -X main.commit=...", as the Makefile does.
var version, commit string

// build says which sources a program is made of.
type build struct {
	version string // v0.1.0; a program of unknown sources is "dev"
	sources string // "commit 0123abc…", or the checksum of the module
	made    string // by which compiler, for which system
}

func (b build) String() string { return fmt.Sprintf("%s (%s, %s)", b.version, b.sources, b.made) }

// revision is the commit, or the checksum of the module.
func (b build) revision() string { return strings.TrimPrefix(b.sources, "commit ") }

// thisBuild is the running program.
func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(version, commit, info)
}

// buildOf uses what the linker was told, else what the go command has noted: the version and checksum of a module that
// go install has fetched, or the commit of the clone in which it has built.
func buildOf(version, commit string, info *debug.BuildInfo) build {
	b := build{
		version: version,
		made:    fmt.Sprintf("%s, %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH),
	}
	if module := info.Main.Version; b.version == "" && module != "(devel)" {
		b.version = module
	}
	b.version = cmp.Or(b.version, "dev")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = cmp.Or(commit, s.Value)
		}
	}
	if commit == "" && info.Main.Sum != "" {
		b.sources = "sources " + info.Main.Sum
	} else {
		b.sources = "commit " + cmp.Or(commit, "unknown")
	}
	return b
}
