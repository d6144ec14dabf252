package clients

import (
	"math/rand/v2"
	"sync/atomic"
)

// IDs gives each client of one proxy process an id. Redis counts its ids from 1 and never gets as far as firstID, so an
// id tells by itself whether it is the proxy's or Redis's. All ids can be held by a float64, as JavaScript needs it.
// The middle is random for each process: the id of another proxy's client is not one of this proxy's, except once in a
// million.
type IDs struct {
	base uint64
	n    atomic.Uint64
}

const (
	firstID = 1 << 52
	endID   = 1 << 53
	perIDs  = 1 << 32 // ids of one process
)

// UnusedID is the id of no client, neither the proxy's nor Redis's.
const UnusedID = firstID

// NewIDs begins the ids of a process.
func NewIDs() *IDs {
	return &IDs{base: firstID + rand.Uint64N((endID-firstID)/perIDs)*perIDs}
}

// Next returns a new id. Each is larger than the one before.
func (s *IDs) Next() uint64 { return s.base + s.n.Add(1) }
