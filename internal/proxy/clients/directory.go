// Package clients makes the answers about the proxy's clients, those of CLIENT LIST, INFO, KILL and UNBLOCK and of the
// section Clients of INFO: the ids of clients, the lines that describe a client, and the filters that choose among
// clients. It does no I/O and knows no sessions: its input is replies of Redis and descriptions of clients.
package clients

import (
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Directory finds clients by their ids. A listing of all clients delays no other user. The zero value is ready.
type Directory struct {
	clients sync.Map // of Visible, by id
	len     atomic.Int64
}

// Put adds a client, or takes the place of the one with the same id.
func (d *Directory) Put(id uint64, c Visible) {
	if _, known := d.clients.Swap(id, c); !known {
		d.len.Add(1)
	}
}

// Remove forgets a client. It may be called again.
func (d *Directory) Remove(id uint64) {
	if _, known := d.clients.LoadAndDelete(id); known {
		d.len.Add(-1)
	}
}

// Get finds a client.
func (d *Directory) Get(id uint64) (c Visible, ok bool) {
	v, _ := d.clients.Load(id)
	c, ok = v.(Visible)
	return c, ok
}

// Len is the number of clients.
func (d *Directory) Len() int { return int(d.len.Load()) }

// Each passes through the clients with these ids, in that order, or for nil through all clients, in the order of their
// ids. It lets other goroutines run now and then: with as many such loops as processors, event loops would wait for a
// time slice of the scheduler, 10 ms.
func (d *Directory) Each(ids []uint64) iter.Seq[Visible] {
	return func(yield func(Visible) bool) {
		if ids == nil {
			ids = d.ids()
		}
		for i, id := range ids {
			if c, ok := d.Get(id); ok && !yield(c) {
				return
			}
			if i%64 == 63 {
				runtime.Gosched()
			}
		}
	}
}

// ids are the ids of all clients at the time of the call, sorted.
func (d *Directory) ids() []uint64 {
	all := make([]uint64, 0, d.Len())
	for id := range d.clients.Range {
		all = append(all, id.(uint64))
	}
	slices.Sort(all)
	return all
}

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
