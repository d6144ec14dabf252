package command

import (
	"hash/maphash"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Request is a command from the reader to its reply.
//
// The reader of a session makes it, and the stages of routing read the fields of the command, and set those of its way.
// As a rule it ends when it has been routed; the handlers of its reply have copied the few facts that they need. Some
// are held longer (Held). Requests are recycled. The lock of the session guards them.
type Request struct {
	// The command.
	Row    *Row
	Policy Policy   // of this form of the command
	Raw    []byte   // its bytes
	Args   [][]byte // of it, until it has been routed
	Size   int      // of the command as it came, in bytes
	Muted  bool     // the client gets no reply

	Aim // in front of a cluster

	// How long it lives.
	Routing bool   // it has not been routed
	Held    bool   // it outlives its routing
	Own     []byte // its bytes then
}

// Keep holds a request, with a copy of its bytes. The garbage collector ends it.
func (r *Request) Keep() {
	r.Held = true
	r.Own = append(r.Own[:0], r.Raw...)
}

// FewArgs arguments are looked at of a command with more than manyArgs, if they tell its way. A client chooses the
// number, and others wait meanwhile.
const FewArgs = 8

const manyArgs = 2048

// IsLong reports whether the command has more than manyArgs arguments. Each takes six bytes or more.
func (r *Request) IsLong() bool { return len(r.Raw) > 6*manyArgs && resp.Count(r.Raw) > manyArgs }

// An Aim is where a command goes.
type Aim struct {
	Slot   int           // of its first key; negative: it has none
	Key    uint64        // a hash of its only key; 0: it has none, or several
	At     topology.Node // the server
	Asking bool          // it goes there behind an ASKING
}

// Several reports whether the command has several keys.
func (a *Aim) Several() bool { return a.Slot >= 0 && a.Key == 0 }

// GoTo has a command sent behind an ASKING to the server that has its key already; Any: there is none.
func (a *Aim) GoTo(asking topology.Node) {
	if a.Asking = asking != topology.Any; a.Asking {
		a.At = asking
	}
}

// Look finds the slot of the command, and its key.
func (r *Request) Look() {
	r.Slot, r.Key = -1, 0
	i := r.Row.Keys.First(r.Args)
	if i == 0 {
		return
	}
	if r.Slot = hashslot.Of(r.Args[i]); !r.Row.Keys.Several(r.Args) {
		r.Key = maphash.Bytes(seed, r.Args[i])
	}
}

var seed = maphash.MakeSeed()

// A Decision is what a stage of routing has made of a command.
type Decision uint8

// The decisions.
const (
	Undecided  Decision = iota // the stage does not concern the command: the next one decides
	OnLane                     // it goes to a lane, although the session has a pin
	Postponed                  // not now: the session waits
	CarriedOut                 // it has been sent or answered
)

// Decided is the decision of a stage that concerns the command.
func Decided(routed bool) Decision {
	if routed {
		return CarriedOut
	}
	return Postponed
}
