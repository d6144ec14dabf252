//go:build !unix

package listen

import "io/fs"

// limitSocketMode has nothing to set.
func limitSocketMode(uintptr, fs.FileMode) {}
