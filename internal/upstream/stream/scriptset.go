package stream

import "sync/atomic"

// ScriptSet records which scripts a connection has run, so that the server which it leads to knows their text. It is
// cleared when the connection ends. IDs are 0 to 63. Several goroutines may use it.
type ScriptSet struct{ bits atomic.Uint64 }

// Has reports whether the connection has run a script.
func (s *ScriptSet) Has(id int) bool { return s.bits.Load()&(1<<id) != 0 }

// Add records that the connection has run a script.
func (s *ScriptSet) Add(id int) { s.bits.Or(1 << id) }

// Remove records that the server has forgotten a script.
func (s *ScriptSet) Remove(id int) { s.bits.And(^(uint64(1) << id)) }

func (s *ScriptSet) clear() { s.bits.Store(0) }
