//go:build !unix

package proxy

import "io/fs"

// limitSocketMode has nothing to set.
func limitSocketMode(uintptr, fs.FileMode) {}
