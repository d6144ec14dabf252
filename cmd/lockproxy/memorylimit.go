package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// MemoryLimit is an amount of memory: bytes, written as a Size, or, if it is negative, that many percent of the memory
// that this process may have, written as 50%.
type MemoryLimit int64

// UnmarshalText parses a size or a share.
func (m *MemoryLimit) UnmarshalText(text []byte) error {
	digits, isShare := strings.CutSuffix(string(text), "%")
	if !isShare {
		var size Size
		if err := size.UnmarshalText(text); err != nil {
			return fmt.Errorf("%q is neither a size like 512mb nor a share like 50%%", text)
		}
		*m = MemoryLimit(size)
		return nil
	}
	n, err := strconv.ParseUint(digits, 10, 8)
	if err != nil || n < 1 || n > 100 {
		return fmt.Errorf("%q is not a share between 1%% and 100%%", text)
	}
	*m = -MemoryLimit(n)
	return nil
}

// UnmarshalYAML says where in the file it is wrong.
func (m *MemoryLimit) UnmarshalYAML(node ast.Node) error {
	return unmarshalScalar(node, m.UnmarshalText)
}

// String is what UnmarshalText reads.
func (m MemoryLimit) String() string {
	if m < 0 {
		return strconv.FormatInt(int64(-m), 10) + "%"
	}
	return Size(m).String()
}

// LeastMemory is the smallest budget with which clients can be served.
const LeastMemory = 32 * Mebibyte

// Of returns the limit in bytes, if available is the number of bytes that the process may have.
func (m MemoryLimit) Of(available uint64) int {
	if m >= 0 {
		return int(m)
	}
	return max(int(min(available, math.MaxInt)/100)*int(-m), int(LeastMemory))
}
