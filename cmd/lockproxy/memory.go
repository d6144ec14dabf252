package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/goccy/go-yaml/ast"
	"go.uber.org/zap"
)

// MemoryLimit is an amount of memory: bytes, written as a Size, or, if it is negative, that many percent of the memory that this
// process may have, written as 50%.
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
func (m *MemoryLimit) UnmarshalYAML(node ast.Node) error { return unmarshalScalar(node, m) }

// String is what UnmarshalText reads.
func (m MemoryLimit) String() string {
	if m < 0 {
		return strconv.FormatInt(int64(-m), 10) + "%"
	}
	return Size(m).String()
}

// leastMemory is the smallest budget with which clients can be served.
const leastMemory = 16 * mebibyte

// of returns the limit in bytes, if available is the number of bytes that the process may have.
func (m MemoryLimit) of(available uint64) int {
	if m >= 0 {
		return int(m)
	}
	return max(int(min(available, math.MaxInt)/100)*int(-m), int(leastMemory))
}

// unknownMemory stands for what this process may have where the system does not say.
const unknownMemory = 2 << 30

// availableMemory is the memory that this process may have, in bytes: the machine's memory, or less if its control group (version 1 or 2) is
// limited, as in a container.
func availableMemory() (uint64, error) {
	available, err := memlimit.FromSystem()
	limited, cerr := memlimit.FromCgroup()
	switch {
	case cerr == nil && (err != nil || limited < available):
		return limited, nil
	case err != nil:
		return unknownMemory, errors.Join(err, cerr)
	}
	return available, nil
}

// collectBelow is the share of the available memory from which on the garbage collector works harder, rather than let the
// process grow and be killed.
const collectBelow = 0.9

// The process has its own needs beside the buffers of clients, and garbage in proportion to them: from clients * garbageShare +
// ownMemory on the garbage collector works harder as well. Buffers grow by copying, so a limit close to them would make it work
// without end.
const (
	garbageShare = 1.5
	ownMemory    = 256 << 20
)

// limitMemory makes the runtime stay within available, and near clients, which is the limit of the buffers of all clients, unless
// GOMEMLIMIT already says what is right. All are in bytes.
func limitMemory(available, clients uint64, log *zap.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	soft := int64(min(float64(min(available, math.MaxInt64))*collectBelow, float64(clients)*garbageShare+ownMemory))
	debug.SetMemoryLimit(soft)
	log.Debug("memory", zap.Uint64("available", available), zap.Int64("soft_limit", soft))
}
