// Package grammar is the language of the lock commands. One table says which verbs there are and which options each
// takes. From it come Parse, the entries of COMMAND and COMMAND DOCS, and the tables in docs/LOCKS.md, which a test
// writes.
//
// A new option is one Argument in the table, one bit of option, and one case in Command.set. The package does no I/O.
package grammar

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// Verb is one of the lock commands.
type Verb uint8

// The lock commands.
const (
	Lock Verb = iota + 1
	TryLock
	FairLock
	Unlock
	ExtendLock
	LockInfo
	LockList
	ForceUnlock
)

// maxOwner bounds an explicit owner, in bytes: it is stored as a hash field and as part of a channel name.
const maxOwner = 256

// maxKey bounds the name of a lock, in bytes. The proxy and each script call have it several times.
const maxKey = 4 << 10

// maxNote bounds a note, in bytes.
const maxNote = 256

// maxPattern bounds a pattern, in bytes: a match costs its length for each byte of a name.
const maxPattern = 1 << 10

// forever is the Wait of a command that waits without a limit.
const forever = time.Duration(-1)

// Of a command that leaves Grace, MaxHold or Sync to the configuration.
const (
	unset     = time.Duration(-1)
	unsetSync = -1
)

// String is the name of the command in lower case, as Redis prints it in errors.
func (v Verb) String() string {
	for i := range table {
		if table[i].Verb == v {
			return table[i].Name
		}
	}
	return "verb(" + strconv.Itoa(int(v)) + ")"
}

// Command is one parsed lock command. It shares no memory with its arguments.
type Command struct {
	Verb    Verb
	Key     string        // empty only for LockList
	Wait    time.Duration // how long to wait for the lock; 0: not at all, negative: without a limit
	Lease   time.Duration // PX or EX: a fixed lease; 0: the watchdog renews
	Owner   string        // empty: the session's own
	Grace   time.Duration // the most that may be left of the lease after the connection ends; negative: as configured
	MaxHold time.Duration // when the watchdog stops renewing; 0: never, negative: as configured
	Sync    int           // how many replicas must have the grant before it is answered; negative: as configured
	Fence   int64         // UNLOCK, EXTENDLOCK: only the grant with this fence; 0: any
	Note    string        // what LOCKINFO shows of the hold
	Shared  bool          // a shared hold is meant
	Limit   int           // how many may hold the lock; 0: not one of the permits is meant
	Match   string        // LOCKLIST: only keys that match this glob; empty: all
	Count   int           // LOCKLIST: the most locks to list; 0: all
}

// ParseError is what a client gets for arguments that are not a lock command.
type ParseError struct {
	text string
}

// Error is the whole text of the error reply, from its code on, in Redis's words: "ERR syntax error".
func (e *ParseError) Error() string { return e.text }

// The words are Redis's own, so that clients which know them need not learn others.
func errArity(name string) error {
	return &ParseError{"ERR wrong number of arguments for '" + name + "' command"}
}

func errExpire(name string) error {
	return &ParseError{"ERR invalid expire time in '" + name + "' command"}
}

var (
	errSyntax       = &ParseError{"ERR syntax error"}
	errEmptyKey     = &ParseError{"ERR syntax error: the name of the lock is empty; is a variable not set?"}
	errNoLease      = &ParseError{"ERR syntax error: PX or EX is missing"}
	errLongKey      = &ParseError{"ERR the name of the lock is longer than 4096 bytes"}
	errDerived      = &ParseError{"ERR a key that another lock has beside its own cannot be a lock"}
	errNote         = &ParseError{"ERR note is longer than 256 bytes"}
	errPattern      = &ParseError{"ERR pattern is longer than 1024 bytes"}
	errRange        = &ParseError{"ERR value is not an integer or out of range"}
	errOwner        = &ParseError{"ERR owner must be 1 to 256 bytes without braces, and not 'fence' or 'mode'"}
	errDefaultOwner = &ParseError{"ERR OWNER cannot be the default owner of a connection"}
	errShared       = &ParseError{"ERR OWNER cannot be the place of a proxy's waiters"}
)

// errOption is a syntax error about a word of the client's.
func errOption(what string, word []byte) error {
	return &ParseError{errSyntax.text + ": " + what + "'" + safe(word) + "'"}
}

// longestWord is how much of a client's word an error has, in bytes.
const longestWord = 32

// safe is a word of the client's for an error: short, and without bytes that could end the line or the quotes.
func safe(word []byte) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || r == '\'' {
			return '?'
		}
		return r
	}, string(word[:min(len(word), longestWord)]))
	if len(word) > longestWord {
		clean += "..."
	}
	return clean
}

// unknown is the error about a word that is no option of the verb. It names the option that begins like the word.
func (s *Spec) unknown(word []byte) error {
	const alike = 2 // letters
	best, meant := alike-1, ""
	lower := strings.ToLower(string(word[:min(len(word), longestWord)]))
	for _, o := range s.options {
		same := 0
		for same < min(len(lower), len(o.name)) && lower[same] == o.name[same] {
			same++
		}
		if same > best {
			best, meant = same, ", did you mean "+strings.ToUpper(o.name)+"?"
		}
	}
	return &ParseError{errOption("unknown option ", word).Error() + meant}
}

// option is a bit set, so that one given twice is seen.
type option uint16

const (
	optWait option = 1 << iota
	optPX
	optEX
	optOwner
	optGrace
	optMaxHold
	optSync
	optFence
	optMatch
	optCount
	optShared
	optLimit
	optNote

	// They exclude each other.
	optLease = optPX | optEX
	optMode  = optShared | optLimit
)

// IsVerb reports whether name is a lock command, in any case. It does not allocate.
func IsVerb(name []byte) bool { return Find(name) != nil }

// Parse turns the arguments of a lock command, its name first, into a Command. The error is a *ParseError.
func Parse(args [][]byte) (Command, error) {
	if len(args) == 0 {
		return Command{}, errSyntax
	}
	s := Find(args[0])
	if s == nil {
		return Command{}, errSyntax
	}
	c := Command{Verb: s.Verb, Grace: unset, MaxHold: unset, Sync: unsetSync}
	if s.Verb == Lock || s.Verb == FairLock {
		c.Wait = forever
	}
	if !s.Accepts(len(args)) {
		return Command{}, errArity(s.Name)
	}
	if s.keys > 0 {
		switch n := len(args[1]); {
		case n == 0:
			return Command{}, errEmptyKey
		case n > maxKey:
			return Command{}, errLongKey
		case script.IsDerived(args[1]):
			return Command{}, errDerived
		}
		c.Key = string(args[1])
	}
	var seen option
	for rest := args[1+s.keys:]; len(rest) > 0; {
		opt := s.option(rest[0])
		clash := opt
		for _, set := range []option{optLease, optMode} {
			if opt&set != 0 {
				clash = set
			}
		}
		switch {
		case opt == 0:
			return Command{}, s.unknown(rest[0])
		case seen&clash != 0:
			return Command{}, errOption("repeated, or excluded by an option in front of it: ", rest[0])
		case len(rest) < 2 && opt != optShared:
			return Command{}, errOption("no value for option ", rest[0])
		}
		seen |= opt
		if opt == optShared {
			c.Shared = true
			rest = rest[1:]
			continue
		}
		if err := c.set(opt, rest[1], s.Name); err != nil {
			return Command{}, err
		}
		rest = rest[2:]
	}
	if s.required != 0 && seen&s.required == 0 {
		return Command{}, errNoLease
	}
	return c, nil
}

// set stores the value of one option.
func (c *Command) set(opt option, value []byte, name string) error {
	var err error
	switch opt {
	case optWait:
		c.Wait, err = milliseconds(value)
	case optGrace:
		c.Grace, err = milliseconds(value)
	case optMaxHold:
		c.MaxHold, err = milliseconds(value)
	case optSync:
		c.Sync, err = number(value, 0)
	case optLimit:
		c.Limit, err = number(value, 1)
	case optCount:
		c.Count, err = number(value, 1)
	case optPX:
		c.Lease, err = lease(value, time.Millisecond, name)
	case optEX:
		c.Lease, err = lease(value, time.Second, name)
	case optFence:
		c.Fence, err = integer(value)
		if err == nil && c.Fence < 1 {
			err = errRange
		}
	case optMatch:
		c.Match = string(value)
		if len(value) > maxPattern {
			err = errPattern
		}
	case optNote:
		c.Note = string(value)
		if len(value) > maxNote {
			err = errNote
		}
	case optOwner:
		c.Owner = string(value)
		if !validOwner(c.Owner) {
			err = errOwner
		} else if script.IsDefault(c.Owner) {
			err = errDefaultOwner
		} else if script.IsCrowd(c.Owner) {
			err = errShared
		}
	case optShared, optLease, optMode: // an option without a value, and sets of options
	}
	return err
}

// validOwner refuses owners that cannot be told from a lock's own fields or would move its channel to another slot.
func validOwner(owner string) bool {
	return owner != "" && len(owner) <= maxOwner && owner != "fence" && owner != "mode" &&
		!strings.ContainsAny(owner, "{}")
}

// number parses how many there are, at least that many.
func number(value []byte, least int64) (int, error) {
	n, err := integer(value)
	if err == nil && (n < least || n > math.MaxInt32) {
		err = errRange
	}
	return int(n), err
}

// milliseconds parses a length of time, 0 or more.
func milliseconds(value []byte) (time.Duration, error) {
	n, err := integer(value)
	if err == nil && (n < 0 || n > maxLength/int64(time.Millisecond)) {
		err = errRange
	}
	return time.Duration(n) * time.Millisecond, err
}

// lease parses the length of a lease, more than 0.
func lease(value []byte, unit time.Duration, name string) (time.Duration, error) {
	n, err := integer(value)
	if err == nil && (n < 1 || n > maxLength/int64(unit)) {
		err = errExpire(name)
	}
	return time.Duration(n) * unit, err
}

// maxLength keeps deadlines within what time.Time can add: a century.
const maxLength = int64(100 * 365 * 24 * time.Hour)

// integer parses what Redis takes for an integer: no blanks, no plus sign, no leading zeros.
func integer(value []byte) (int64, error) {
	digits := value
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && len(value) > 1) {
		return 0, errRange
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, errRange
	}
	return n, nil
}
