package upstream

import "sync/atomic"

// Notes is a set of small numbers, 0 to 63, that is forgotten when the connection ends: what has been set up in the server
// that it leads to. It may be used by several goroutines.
type Notes struct{ bits atomic.Uint64 }

// Has reports whether i was added since the connection was made.
func (n *Notes) Has(i int) bool { return n.bits.Load()&(1<<i) != 0 }

// Add adds i.
func (n *Notes) Add(i int) { n.bits.Or(1 << i) }

// Remove takes i out.
func (n *Notes) Remove(i int) { n.bits.And(^(uint64(1) << i)) }

func (n *Notes) forget() { n.bits.Store(0) }
