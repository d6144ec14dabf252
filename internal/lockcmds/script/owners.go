package script

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// This file makes and recognizes the owner names that a proxy gives out itself.
//
// A session that can name an owner can act for it. The name of a session is "<UUID of the process>:<token>", in
// Redisson's form, and its acquires without OWNER have owners "<UUID>:<token>:<number>", which never come back. The
// lock engine relies on no other session acting for these. So the token is random and cannot be guessed, and the option
// OWNER refuses names of these forms, because LOCKINFO shows them.

const (
	uuidLength  = 36
	tokenLength = 19
	// leastToken is the least number of that many digits. Redisson's second part, a thread's number, is a positive
	// 64-bit integer too.
	leastToken = 1_000_000_000_000_000_000
)

// NewToken makes the second part of a session's default owner: 19 digits, 62 bits of chance.
func NewToken() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	const span = 1<<63 - leastToken
	return strconv.FormatUint(leastToken+binary.LittleEndian.Uint64(b[:])%span, 10)
}

// Default is the name of a session with that token, in the process with that UUID.
func Default(uuid, token string) string { return uuid + ":" + token }

// crowdMark follows the UUID in the name of the place that the plain waiters of a proxy share in a wait queue; the
// scripts know it. OWNER refuses such a name: under it, FAIRLOCK would take the turn of those waiters.
const crowdMark = ":plain-"

// CrowdOf is the name of the place that the plain waiters of one engine share in a wait queue. number is the engine's
// own, at random.
func CrowdOf(uuid string, number uint32) string {
	return fmt.Sprintf("%s%s%08x", uuid, crowdMark, number)
}

// IsCrowd reports whether the name has the form of a crowd's place, of this proxy or another.
func IsCrowd(name string) bool {
	return len(name) > uuidLength && strings.HasPrefix(name[uuidLength:], crowdMark)
}

// sessionOf is the name of the session of an owner that a proxy has named; of all others it is the whole name.
func sessionOf(owner string) string {
	const length = uuidLength + 1 + tokenLength
	if len(owner) > length+1 && owner[length] == ':' && strings.Trim(owner[length+1:], "0123456789") == "" {
		return owner[:length]
	}
	return owner
}

// IsDefault reports whether the name has the form of a session's name or of an owner of its acquires, at this proxy or
// another.
func IsDefault(name string) bool {
	if name = sessionOf(name); len(name) != uuidLength+1+tokenLength || name[uuidLength] != ':' {
		return false
	}
	for i, c := range []byte(name) {
		switch {
		case i == uuidLength:
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case i < uuidLength && !strings.ContainsRune("0123456789abcdefABCDEF", rune(c)),
			i > uuidLength && (c < '0' || c > '9'):
			return false
		}
	}
	return true
}

// Process is the part of a name that all owners of one process share, in this proxy's form and Redisson's; empty if the
// name has another form.
func Process(name string) string {
	if len(name) > uuidLength && name[uuidLength] == ':' {
		return name[:uuidLength]
	}
	return ""
}
