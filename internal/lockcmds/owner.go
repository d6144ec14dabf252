package lockcmds

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"strings"
)

// Any session that can name an owner can act for it. A session's default owner is "<UUID of the process>:<token>" in Redisson's form.
// The engine relies on no other session acting for it. So the token is random and cannot be guessed, and the option OWNER refuses a
// default owner, because LOCKINFO shows them.

const (
	uuidLength  = 36
	tokenLength = 19
	// leastToken is the least number of that many digits. Redisson's second part, a thread's number, is a positive 64-bit integer too.
	leastToken = 1_000_000_000_000_000_000
)

// NewToken makes the second part of a session's default owner: 19 digits, 62 bits of chance.
func NewToken() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	const span = 1<<63 - leastToken
	return strconv.FormatUint(leastToken+binary.LittleEndian.Uint64(b[:])%span, 10)
}

// crowdMark follows the UUID in the name of the place that a proxy's plain waiters share in a queue (Engine.crowd, and
// scripts/lib/free.lua). OWNER refuses such a name: under it, FAIRLOCK would take the turn of those waiters.
const crowdMark = ":plain-"

// isCrowd reports whether the owner has the form of the place of plain waiters, at this proxy or another.
func isCrowd(owner string) bool {
	return len(owner) > uuidLength && strings.HasPrefix(owner[uuidLength:], crowdMark)
}

// isDefaultOwner reports whether the owner has the form of a session's default owner, at this proxy or another.
func isDefaultOwner(owner string) bool {
	if len(owner) != uuidLength+1+tokenLength || owner[uuidLength] != ':' {
		return false
	}
	for i, c := range []byte(owner) {
		switch {
		case i == uuidLength:
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case i < uuidLength && !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)), i > uuidLength && (c < '0' || c > '9'):
			return false
		}
	}
	return true
}
