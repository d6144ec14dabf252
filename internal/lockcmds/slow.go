package lockcmds

import (
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// This file logs waits for locks and holds of locks that have taken longer than lock.slow, at their ends.

// A HoldEnd is how a hold has ended.
type HoldEnd uint8

// The ends of holds.
const (
	ByRelease    HoldEnd = iota
	ByLoss               // the lock was taken away, or its lease has run out against the will of its holder
	ByExpiry             // its fixed lease (PX, EX) has run out
	ByDisconnect         // its client has gone; the lease may go on
)

// HoldEnds has the label of each end.
var HoldEnds = [...]string{ByRelease: "released", ByLoss: "lost", ByExpiry: "expired", ByDisconnect: "client_gone"}

func (e HoldEnd) String() string { return HoldEnds[e] }

// A waitEnd is how a wait has ended, for the log.
type waitEnd string

const (
	waitGranted  waitEnd = "granted"
	waitTimedOut waitEnd = "timed_out" // the client's time was up, or CLIENT UNBLOCK said so
	waitFailed   waitEnd = "error"
	waitHungUp   waitEnd = "client_gone"
)

// elsewhere is the owner of a lock whose holder is no client of the same user at this proxy.
const elsewhere = "elsewhere"

// party is an owner with its client connection, for people. Its texts may be empty.
type party struct {
	owner  string
	client table.Client
	note   string // of its hold
}

// fields are those of an entry about a lock that the owner has waited for, or held.
func (p party) fields(key string, took time.Duration, outcome string) []zap.Field {
	fields := []zap.Field{
		logging.Text("key", key), logging.Text("owner", p.owner),
		zap.String("client", p.client.Addr), logging.Text("client_name", p.client.Name),
		zap.Int64("ms", took.Milliseconds()), zap.String("outcome", outcome),
	}
	return appendNote(fields, "note", p.note)
}

func appendNote(fields []zap.Field, name, note string) []zap.Field {
	if note == "" {
		return fields
	}
	return append(fields, logging.Text(name, note))
}

// slow reports whether a wait or a hold of that length is to be logged.
func (e *keeper) slow(took time.Duration) bool {
	limit := e.defaults().Slow
	return limit > 0 && took > limit
}

// logWait logs a wait that has ended, if it was slow.
func (e *keeper) logWait(by party, key string, took time.Duration, end waitEnd, behind party) {
	if e.slow(took) {
		fields := append(by.fields(key, took, string(end)),
			logging.Text("behind", behind.owner), zap.String("behind_client", behind.client.Addr),
			logging.Text("behind_client_name", behind.client.Name))
		e.entries.Write(zap.WarnLevel, "slow wait", "", appendNote(fields, "behind_note", behind.note)...)
	}
}

// logHold logs a hold that has ended, if it was slow.
func (e *keeper) logHold(by party, key string, took time.Duration, end HoldEnd) {
	if e.slow(took) {
		e.entries.Write(zap.WarnLevel, "slow hold", "", by.fields(key, took, end.String())...)
	}
}
