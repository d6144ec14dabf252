package topology

import (
	"bytes"
	"net"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
)

// A RefusalReason says why a node has not carried out a command.
type RefusalReason uint8

// The reasons. Redis gives each of them before it begins to carry out the command.
const (
	NotRefused     RefusalReason = iota // none: the reply is the command's own
	Moved                               // another node serves the slot
	Asking                              // the slot is being moved, and the key has been moved already
	TryLate                             // the command may succeed a moment later
	Vanished                            // the key at which the command waited is there no longer: deleted, or moved
	RefusalReasons                      // their number
)

// String is the reason for people, and a label of metrics.
func (r RefusalReason) String() string {
	switch r {
	case Moved:
		return "moved"
	case Asking:
		return "ask"
	case TryLate:
		return "later"
	case Vanished:
		return "vanished"
	case NotRefused, RefusalReasons:
	}
	return "done"
}

// A Refusal is an error reply that says that a command was not carried out.
type Refusal struct {
	Reason  RefusalReason
	Slot    int    // of Moved and Asking
	Address string // of the other node; it may have no host: see View.Named
}

// Concerns reports whether a server has refused a command whose key has that slot. With another slot the reply is a
// script's own.
func (r Refusal) Concerns(slot int) bool {
	return r.Reason == TryLate || r.Reason == Vanished || r.Reason != NotRefused && r.Slot == slot
}

// late are the beginnings of the replies that mean TryLate.
var late = [][]byte{
	[]byte("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"),
	[]byte("-CLUSTERDOWN Hash slot not served\r\n"),
	[]byte("-CLUSTERDOWN The cluster is down"),
	[]byte("-LOADING Redis is loading the dataset in memory\r\n"),
	[]byte("-LOADING Valkey is loading the dataset in memory\r\n"),
	[]byte("-MASTERDOWN Link with MASTER is down"),
	// The server has been demoted, and the command has no key, or has waited.
	[]byte("-READONLY You can't write against a read only replica.\r\n"),
	[]byte("-UNBLOCKED force unblock from blocking operation, instance state changed"),
}

// ReadRefusal reads a whole reply. A text that merely resembles a refusal is the command's own reply: a script may
// answer anything.
func ReadRefusal(reply []byte) Refusal {
	switch {
	case bytes.HasPrefix(reply, []byte("-MOVED ")):
		return redirect(Moved, reply[len("-MOVED "):])
	case bytes.HasPrefix(reply, []byte("-ASK ")):
		return redirect(Asking, reply[len("-ASK "):])
	}
	for _, text := range late {
		if bytes.HasPrefix(reply, text) {
			return Refusal{Reason: TryLate}
		}
	}
	return Refusal{}
}

var vanished = []byte("-UNBLOCKED the stream key no longer exists\r\n")

// ReadWaitingRefusal reads the reply to a command that may have waited.
func ReadWaitingRefusal(reply []byte) Refusal {
	if bytes.Equal(reply, vanished) {
		return Refusal{Reason: Vanished}
	}
	return ReadRefusal(reply)
}

// redirect reads "slot host:port\r\n".
func redirect(why RefusalReason, rest []byte) Refusal {
	rest, ended := bytes.CutSuffix(rest, []byte("\r\n"))
	number, address, two := bytes.Cut(rest, []byte(" "))
	if !ended || !two || len(number) > 5 || bytes.ContainsAny(address, " \r\n") {
		return Refusal{}
	}
	slot, err := strconv.ParseUint(string(number), 10, 16)
	if err != nil || slot >= hashslot.Count {
		return Refusal{}
	}
	colon := bytes.LastIndexByte(address, ':') // an IPv6 address has no brackets
	if colon < 0 {
		return Refusal{}
	}
	host, port := string(address[:colon]), string(address[colon+1:])
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return Refusal{}
	}
	return Refusal{Reason: why, Slot: int(slot), Address: net.JoinHostPort(host, port)}
}

// Attempts count the refusals of one command, and the time that they have cost it.
type Attempts struct {
	spent time.Duration // up to last, since the first one
	last  time.Time     // of a refusal, or of the attempt that has followed it
	tries int
}

// elapse notes that time has passed.
func (a *Attempts) elapse() {
	now := time.Now()
	if a.tries > 0 {
		a.spent += now.Sub(a.last)
	}
	a.last = now
}

// Refused notes a refusal. It reports whether the command may be sent again: it may until refusals have cost it a time.
func (a *Attempts) Refused(within time.Duration) bool {
	a.elapse()
	a.tries++
	return a.spent < within
}

// Sent notes that the command is sent again. Before the first refusal it does nothing.
func (a *Attempts) Sent() {
	if a.tries > 0 {
		a.elapse()
	}
}

// Waited forgets the refusals if a server, which refuses the command now, has let it wait since then: another slot has
// moved, or the same one again.
func (a *Attempts) Waited(within time.Duration) {
	if time.Since(a.last) > within {
		*a = Attempts{}
	}
}

// Held is Waited for a command that waits for other clients: no refusal has cost it the time since it was sent, however
// short that is.
func (a *Attempts) Held(within time.Duration) {
	a.Waited(within)
	a.last = time.Now()
}

// Pause is the time before the next attempt.
func (a *Attempts) Pause() time.Duration {
	if a.tries <= 1 {
		return 0
	}
	return min(5*time.Millisecond<<min(a.tries-2, 8), 100*time.Millisecond)
}
