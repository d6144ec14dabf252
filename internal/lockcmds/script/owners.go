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
// A session that can name an owner can act for it. The name of a session is "<UUID of the process>:<token>", and its
// acquires without OWNER have owners "<UUID>:<token>:<n>", which never come back. The lock engine relies on no other
// session acting for these. So the token is random and cannot be guessed, and the option OWNER refuses names of these
// forms, because LOCKINFO shows them. They are short: Redis stores a hash with a field of more than 64 bytes at a
// higher price.

const (
	uuidLength  = 36
	tokenLength = 12
	// leastToken is the least number of that many digits.
	leastToken = 131_621_703_842_267_136 // 36^11
)

// NewToken makes the second part of a session's name: 12 digits of base 36, 62 bits of chance.
func NewToken() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return strconv.FormatUint(leastToken+binary.LittleEndian.Uint64(b[:])%(35*leastToken), 36)
}

// SessionName is the name of a session with that token, in the process with that UUID.
func SessionName(uuid, token string) string { return uuid + ":" + token }

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

// IsDefault reports whether the name has the form of a session's name or of an owner of its acquires, at this proxy or
// another.
func IsDefault(name string) bool {
	const length = uuidLength + 1 + tokenLength
	return len(name) == length && isSession(name) || isOwned(name)
}

// isOwned reports whether the name has the form of an owner of a session's acquires.
func isOwned(name string) bool {
	const length = uuidLength + 1 + tokenLength
	return len(name) > length && name[length] == ':' && isDigits(name[length+1:]) && isSession(name[:length])
}

func isSession(name string) bool {
	return Process(name) != "" && strings.Trim(name[:uuidLength], "0123456789abcdefABCDEF-") == "" &&
		strings.Trim(name[uuidLength+1:], "0123456789abcdefghijklmnopqrstuvwxyz") == ""
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// Process is the part of a name that all owners of one process share, in this proxy's form and Redisson's; empty if the
// name has another form.
func Process(name string) string {
	if len(name) > uuidLength && name[uuidLength] == ':' {
		return name[:uuidLength]
	}
	return ""
}
