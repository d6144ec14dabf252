package script

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Prove tells whether a grant is on a server, by a write that changes nothing. WAIT behind it counts the replicas that have the grant.
type Prove struct {
	Key, Owner string
	Fence      int64
}

// Call is the call of prove.lua.
func (p Prove) Call() Call { return Call{prove, []string{p.Key}, []string{p.Owner, itoa(p.Fence)}} }

// DecodeProved decodes the answer of prove.lua.
func DecodeProved(v resp.Value) (here bool, err error) {
	if v.IsError() {
		return false, Error(v.Str)
	}
	return v.Int == 1, nil
}

// Front puts a fair waiter whose grant is about to be dropped at the head of the queue.
type Front struct {
	Key, Owner string
	Fence      int64
	Wait       time.Duration // what deadlines in the queue are counted in
}

// Call is the call of front.lua.
func (f Front) Call() Call {
	n := NamesOf(f.Key)
	return Call{front, []string{n.Lock, n.Queue, n.Deadlines}, []string{f.Owner, itoa(f.Fence), n.PlaceOf(f.Owner), millis(f.Wait)}}
}
