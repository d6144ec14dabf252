package main

import (
	"errors"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

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
