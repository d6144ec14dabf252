package resp

// Code is the first word of an error reply.
type Code string

// The closed list of codes that the proxy itself may answer with; every other code belongs to Redis and is only passed
// on. Each code says whether anything happened.
const (
	Err        Code = "ERR"        // misuse: arity, syntax, a bad number; nothing happened
	NotHeld    Code = "NOTHELD"    // the caller is not the holder; nothing happened
	LostLease  Code = "LOSTLEASE"  // the caller was the holder until its lease ran out; nothing happened
	Overloaded Code = "OVERLOADED" // refused before any work; safe to retry
	Deadlock   Code = "DEADLOCK"   // the wait would never end: another holder waits for the caller; nothing happened
	NotSynced  Code = "NOTSYNCED"  // a lock was granted, too few replicas had it in time, and it was rolled back
)

// Codes returns the closed list in the order of its declaration. The caller owns the slice.
func Codes() []Code {
	return []Code{Err, NotHeld, LostLease, Overloaded, Deadlock, NotSynced}
}

// The texts of networking.c, Redis 7.0, behind "ERR Protocol error: ".
const (
	badMultibulk    = "invalid multibulk length"
	badBulk         = "invalid bulk length"
	bigMultibulk    = "too big mbulk count string"
	bigBulk         = "too big bulk count string"
	bigInline       = "too big inline request"
	unbalanced      = "unbalanced quotes in request"
	unauthMultibulk = "unauthenticated multibulk length"
	unauthBulk      = "unauthenticated bulk length"
)

// expectedBulk is the text for a wrong type byte. Redis prints the byte raw, but no line break inside an error line.
func expectedBulk(got byte) string {
	if got == '\r' || got == '\n' {
		got = ' '
	}
	return "expected '$', got '" + string([]byte{got}) + "'"
}
