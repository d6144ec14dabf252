package main

import (
	"context"
	"errors"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
)

// unknownMemory stands for what this process may have where the system does not say.
const unknownMemory = 2 << 30

// availableMemory is the memory that this process may have, in bytes: the machine's memory, or less if its control
// group (version 1 or 2) is limited, as in a container.
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

// collectBelow is the share of the available memory from which on the garbage collector works harder, rather than let
// the process grow and be killed.
const collectBelow = 0.9

// The process has its own needs beside the buffers of clients, and garbage: from clients * garbageShare + ownMemory on
// the garbage collector works harder as well. Buffers have no pointers, so even much work of it costs little. With a
// share of 1, the process had 40 MB more at its peak with clients = 256 MB.
const (
	garbageShare = 0.8
	ownMemory    = 16 << 20
)

// buffersOf is the part of the memory for clients that their buffers may take, in bytes. The rest is for what is
// charged to no client: copies of buffers that grow, garbage, and the names of locks whose clients have gone. With all
// of it for the buffers, the process reached 1.5 times the memory. What the process itself has counts most if clients
// is small: without it, 1.4 times the memory with clients = 64 MB.
func buffersOf(clients int) int { return (clients - ownMemory) / 3 * 2 }

// Garbage may be twice what is in use. With the runtime's own 100, 64 clients got 12 % fewer pairs of LOCK and UNLOCK
// (go -C bench run . -only lock-shared-64); 400 gave no more. The peaks are the same, as the memory limit holds them.
const garbagePercent = 200

// limitMemory makes the runtime stay within available, and near clients, which is the memory for all clients, unless
// GOMEMLIMIT already says what is right, or GOGC how much garbage there may be. All are in bytes.
func limitMemory(available, clients uint64, log *zap.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	soft := int64(min(float64(min(available, math.MaxInt64))*collectBelow, float64(clients)*garbageShare+ownMemory))
	debug.SetMemoryLimit(soft)
	log.Debug("memory", zap.Uint64("available", available), zap.Int64("soft_limit", soft))
}

// A release returns memory to the system when the process has much that clients do not need. By itself the runtime
// would wait for minutes, as it does with less than that.
type release struct {
	settled int64 // the bytes of the process beside those of clients: at the last release, or the least since
}

const (
	releasePeriod = 2 * time.Second
	releaseFrom   = 32 << 20
	// perClient is the memory of a client beside its buffers. A crowd that goes leaves it.
	perClient = 16 << 10
)

// watch releases memory until ctx ends. clients is the number of bytes of all clients together.
func (r *release) watch(ctx context.Context, clients func() int64) {
	ticker := time.NewTicker(releasePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if r.due(ownMemoryNow(clients())) {
			runtime.GC() // pools keep their memory until the second collection
			debug.FreeOSMemory()
			r.settled = ownMemoryNow(clients())
		}
	}
}

// due reports whether the process has grown by a quarter, apart from the bytes of clients: own is the rest of it.
func (r *release) due(own int64) bool {
	r.settled = min(r.settled, own)
	return own-r.settled > r.settled/4+releaseFrom
}

// ownMemoryNow is the part of the process that is not of clients, in bytes. Charges may be too high.
func ownMemoryNow(clients int64) int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return max(0, int64(sample[0].Value.Uint64()-sample[1].Value.Uint64())-clients)
}
