// Package script is what the locks are in Redis: the Lua scripts, and for each script a typed call and one decoded
// answer. It does no I/O and keeps no state.
//
// Invariant: a script that is run twice leaves what it leaves when it is run once, but for the calls of a named owner
// that are sent once. A late copy of a call meets the grant of its own owner or none. lib/hash.lua says how.
//
//	Acquire{…}.Call() ──► keys and arguments ──► EVALSHA ──► reply ──► DecodeAcquired ──► Acquired{Granted, Fence, …}
//
// A call can travel on the connection of a session or on the lock engine's own; its answer is decoded alike.
package script

import (
	"bytes"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Script is one of the embedded Lua scripts. It is immutable.
type Script struct {
	name string
	id   int
	lib  []string // the functions that it begins with

	// Set by compose.
	text, sha, evalsha string
	keys, args         names
}

// Name is the file name without ".lua".
func (s *Script) Name() string { return s.name }

// ID is a small number: the place in All.
func (s *Script) ID() int { return s.id }

// Text is the whole script, for EVAL.
func (s *Script) Text() string { return s.composed().text }

// SHA is the name of the script for EVALSHA: 40 lower-case hexadecimal digits.
func (s *Script) SHA() string { return s.composed().sha }

// Evalsha is the command EVALSHA with the SHA, as they stand in a request behind the number of its arguments.
func (s *Script) Evalsha() string { return s.composed().evalsha }

//go:embed *.lua lib/*.lua
var files embed.FS

// all is in the order of IDs.
var all []*Script

// The scripts, each with the functions of lib that it begins with. A function stands behind those that it calls.
var (
	ask           = load("ask", "now")
	acquire       = load("acquire")
	acquireLimit  = load("acquire_limit", "head", "turn", "take_turn", "deadline")
	acquireShared = load("acquire_shared")
	deepenHold    = load("deepen", "hash", "hold", "head", "wake")
	crowd         = load("crowd",
		"hash", "hold", "grant", "deepen", "head", "take_turn", "turn", "deadline", "crowd",
		"drop_late", "wake", "shortened")
	fair          = load("fair", "head", "deadline")
	leave         = load("leave", "head", "keep", "next_turn")
	refresh       = load("refresh", "deadline", "mend")
	look          = load("look", "turn")
	removeHead    = load("remove_head", "head", "keep", "next_turn", "take_turn")
	release       = load("release")
	handover      = load("handover")
	handoverLimit = load("handover_limit",
		"head", "keep", "tell_rwlock", "free", "wake", "take_turn")
	leaseLimit = load("lease_limit", "head", "keep", "tell_rwlock", "free", "wake")
	renewLimit = load("renew_limit")
	proveLimit = load("prove_limit")
	extend     = load("extend", "hash", "hold", "head", "wake")
	renew      = load("renew", "hash", "hold")
	info       = load("info", "hash", "shared", "holders_of", "now")
	head       = load("head", "head")
	force      = load("force", leaving("shared", "holders_of")...)
	drop       = load("drop", leaving("hold")...)
	prove      = load("prove", "hash", "hold")
	bound      = load("bound", "hash")
)

// leaving is the functions of a script by which holds of both modes end, with others.
func leaving(also ...string) []string {
	return slices.Concat(
		[]string{"hash"}, also, []string{"head", "keep", "tell_rwlock", "free", "wake", "longest", "leave_shared"},
	)
}

// All returns the scripts in the order of their IDs.
func All() []*Script { return all }

func load(name string, lib ...string) *Script {
	s := &Script{name: name, id: len(all), lib: lib}
	all = append(all, s)
	return s
}

// once composes all texts when one is first needed: the subcommands, as exec, which start two processes of this program
// each time, need none.
var once sync.Once

func (s *Script) composed() *Script {
	once.Do(func() {
		for _, s := range all {
			s.compose()
		}
	})
	return s
}

func (s *Script) compose() {
	var text strings.Builder
	for _, part := range s.lib {
		text.WriteString(read("lib/" + part))
		text.WriteByte('\n')
	}
	own := read(s.name)
	s.keys, s.args = namesIn(own, "KEYS"), namesIn(own, "ARGV")
	text.WriteString(own)
	s.text = comments().ReplaceAllString(included(text.String()), "")
	sum := sha1.Sum([]byte(s.text)) // Redis names scripts by SHA-1
	s.sha = hex.EncodeToString(sum[:])
	s.evalsha = string(resp.AppendBulk(resp.AppendBulk(nil, "EVALSHA"), s.sha))
}

// includes are lines that stand for a file of lib, where its functions are needed only from there on: Redis makes the
// functions of a script anew each time it runs.
var includes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^ *--@ [a-z_]+\n`) })

// comments are the lines that Redis need not keep.
var comments = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^ *--.*\n`) })

func included(text string) string {
	return includes().ReplaceAllStringFunc(text, func(line string) string {
		return included(read("lib/" + strings.TrimSpace(line)[len("--@ "):]))
	})
}

func read(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return string(text)
}

// Error is an error reply of Redis, to be passed on as it is.
type Error string

func (e Error) Error() string { return string(e) }

// ErrorOf is an error reply of Redis.
//
// A script makes the names of other holders' leases itself. While a hash slot is being moved, one of these keys may be
// on the other server already. Then Redis ends the script. The scripts read such keys before they write, so the call
// can be sent again, as one that Redis refuses because of a key that it names.
func ErrorOf(v resp.Value) Error {
	if bytes.Contains(v.Str, []byte("attempted to access a non local key in a cluster node")) {
		return "TRYAGAIN Multiple keys request during rehashing of slot"
	}
	return Error(v.Str)
}

// errStrange is for an answer that no script of ours gives: what was done is not known.
const errStrange = Error("ERR unexpected answer of a lock script")

// Damage is what a script found wrong with a key beside the lock. Such keys are shared with every user that may lock,
// and with Redisson's clients. A foreign value there does not stop a lock command.
type Damage int64

// Values of Damage.
const (
	NoDamage        Damage = iota
	CounterReplaced        // the fence counter held what cannot have been a fence
	NoQueue                // the key of the fair queue holds something else
)

// PTTLs that stand for something else than a length of time.
const (
	NoTTL = -1 * time.Millisecond // the key has none
	Kept  = -2 * time.Millisecond // the lock is free, but kept for another
	// NotFirst: the lock is held and could be held by one more, but others are first.
	NotFirst = -3 * time.Millisecond

	deadlock = -4 * time.Millisecond // of the scripts: Acquired.Deadlock
)

// numbers is what most scripts return: integers, status first; 0 behind the end. The usual end of an acquire or a
// release comes as a bare fence, short for {1, fence, 1}: an array costs Redis a microsecond more.
type numbers struct {
	at  [7]int64
	len int
}

func numbersOf(v resp.Value) (n numbers, _ error) {
	switch {
	case v.IsError():
		return n, ErrorOf(v)
	case v.Kind == resp.Integer:
		return numbers{[7]int64{1, v.Int, 1}, 3}, nil
	case len(v.Elems) == 0 || len(v.Elems) > len(n.at):
		return n, errStrange
	}
	n.len = len(v.Elems)
	for i := range v.Elems {
		n.at[i] = v.Elems[i].Int
	}
	return n, nil
}

func (n *numbers) duration(i int) time.Duration { return time.Duration(n.at[i]) * time.Millisecond }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// millis is a length of time for a script, at least 1 unless it is 0.
func millis(d time.Duration) string { return itoa(milliseconds(d)) }

func milliseconds(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
