package proxy

import (
	"slices"
	"strconv"

	"lockproxy/internal/resp"
)

// lockEntry is what COMMAND says of one lock command. Every reply about it is built from this.
type lockEntry struct {
	name       string
	arity      int      // arguments with the name; negative: at least that many
	flags      []string // Redis's words for how the command behaves
	categories []string // of the ACL, without '@'
	tips       []string
	access     []string // what it does to its key, the first argument; nil: it has no key

	summary, complexity string
	arguments           []lockArgument
}

// lockArgument is one argument of a lock command as COMMAND DOCS describes it.
type lockArgument struct {
	name, kind string // kind is one of Redis's argument types
	token      string // the option's name; empty: a positional argument
	optional   bool
	oneOf      []lockArgument // the alternatives, for kind "oneof"
}

// What COMMAND DOCS says of all lock commands. The group makes "help @lock" of redis-cli list them.
const (
	lockGroup = "lock"
	lockSince = "0.1.0" // of lockproxy
)

var (
	argKey     = lockArgument{name: "key", kind: "key"}
	argWait    = lockArgument{name: "milliseconds", kind: "integer", token: "WAIT", optional: true}
	argPX      = lockArgument{name: "milliseconds", kind: "integer", token: "PX"}
	argEX      = lockArgument{name: "seconds", kind: "integer", token: "EX"}
	argOwner   = lockArgument{name: "id", kind: "string", token: "OWNER", optional: true}
	argGrace   = lockArgument{name: "milliseconds", kind: "integer", token: "GRACE", optional: true}
	argMaxHold = lockArgument{name: "milliseconds", kind: "integer", token: "MAXHOLD", optional: true}
	argFence   = lockArgument{name: "token", kind: "integer", token: "FENCE", optional: true}
	argMatch   = lockArgument{name: "pattern", kind: "pattern", token: "MATCH", optional: true}
	argCount   = lockArgument{name: "count", kind: "integer", token: "COUNT", optional: true}

	acquireArguments = []lockArgument{
		argKey, argWait,
		{name: "lease", kind: "oneof", optional: true, oneOf: []lockArgument{argPX, argEX}},
		argOwner, argGrace, argMaxHold,
	}
)

// lockEntries describe the lock commands. A lock command is a script for Redis, so a user needs the category scripting for
// it. It is refused inside a transaction and unknown to Redis's own scripts.
var lockEntries = []lockEntry{
	{
		name: "lock", arity: -2, flags: []string{"write", "denyoom", "noscript", "blocking", "no_multi"},
		categories: []string{"write", "slow", "blocking", "scripting"}, tips: []string{"nondeterministic_output"},
		access:  []string{"RW", "access", "update"},
		summary: "Acquire a lock, waiting until it is free, and return its fencing token", complexity: "O(1)",
		arguments: acquireArguments,
	},
	{
		name: "trylock", arity: -2, flags: []string{"write", "denyoom", "noscript", "blocking", "no_multi"},
		categories: []string{"write", "slow", "blocking", "scripting"}, tips: []string{"nondeterministic_output"},
		access:  []string{"RW", "access", "update"},
		summary: "Acquire a lock if it is free, and return its fencing token", complexity: "O(1)",
		arguments: acquireArguments,
	},
	{
		name: "fairlock", arity: -2, flags: []string{"write", "denyoom", "noscript", "blocking", "no_multi"},
		categories: []string{"write", "slow", "blocking", "scripting"}, tips: []string{"nondeterministic_output"},
		access:  []string{"RW", "access", "update"},
		summary: "Acquire a lock in the order of asking, and return its fencing token", complexity: "O(log(N)) with N being the number of fair waiters",
		arguments: acquireArguments,
	},
	{
		name: "unlock", arity: -2, flags: []string{"write", "noscript", "no_multi"},
		categories: []string{"write", "slow", "scripting"},
		access:     []string{"RW", "access", "delete"},
		summary:    "Release one hold of a lock", complexity: "O(1)",
		arguments: []lockArgument{argKey, argOwner, argFence},
	},
	{
		name: "extendlock", arity: -4, flags: []string{"write", "noscript", "no_multi"},
		categories: []string{"write", "slow", "scripting"},
		access:     []string{"RW", "access", "update"},
		summary:    "Set how long a lock that is held lasts from now on", complexity: "O(1)",
		arguments: []lockArgument{argKey, {name: "lease", kind: "oneof", oneOf: []lockArgument{argPX, argEX}}, argOwner},
	},
	{
		name: "lockinfo", arity: 2, flags: []string{"readonly", "noscript", "no_multi"},
		categories: []string{"read", "slow", "scripting"}, tips: []string{"nondeterministic_output"},
		access:  []string{"RO", "access"},
		summary: "Describe the holder of a lock and those who wait for it", complexity: "O(N) with N being the number of fair waiters",
		arguments: []lockArgument{argKey},
	},
	{
		name: "locklist", arity: -1, flags: []string{"noscript", "no_multi", "loading", "stale"},
		categories: []string{"slow"}, tips: []string{"nondeterministic_output"},
		summary: "List the locks that are held through this proxy", complexity: "O(N) with N being the number of these locks",
		arguments: []lockArgument{argMatch, argCount},
	},
	{
		name: "forceunlock", arity: 2, flags: []string{"write", "noscript", "no_multi"},
		categories: []string{"write", "slow", "scripting"},
		access:     []string{"RW", "access", "delete"},
		summary:    "Remove a lock, whoever holds it", complexity: "O(1)",
		arguments: []lockArgument{argKey},
	},
}

// lockEntryOf finds the entry of a lock command by its name in lower case; nil if it is none.
func lockEntryOf(name string) *lockEntry {
	i := slices.IndexFunc(lockEntries, func(e lockEntry) bool { return e.name == name })
	if i < 0 {
		return nil
	}
	return &lockEntries[i]
}

// accepts reports whether so many arguments, with the name, may be right.
func (e *lockEntry) accepts(argc int) bool { return argc == e.arity || e.arity < 0 && argc >= -e.arity }

// appendInfo appends the entry in the shape of COMMAND INFO of Redis 7.
func (e *lockEntry) appendInfo(dst []byte, proto int) []byte {
	dst = appendHeader(dst, '*', 10)
	dst = appendText(dst, e.name)
	dst = appendNumber(dst, e.arity)
	dst = appendWords(dst, proto, "", e.flags)
	position := 0
	if e.access != nil {
		position = 1
	}
	for range 3 { // first key, last key, step
		dst = appendNumber(dst, position)
	}
	dst = appendWords(dst, proto, "@", e.categories)
	dst = appendSetHeader(dst, proto, len(e.tips))
	for _, tip := range e.tips {
		dst = appendText(dst, tip)
	}
	dst = e.appendKeySpecs(dst, proto)
	return appendSetHeader(dst, proto, 0) // subcommands
}

// appendKeySpecs says that the first argument is the key, the only one.
func (e *lockEntry) appendKeySpecs(dst []byte, proto int) []byte {
	if e.access == nil {
		return appendSetHeader(dst, proto, 0)
	}
	dst = appendSetHeader(dst, proto, 1)
	dst = resp.AppendMapHeader(dst, proto, 3)
	dst = appendWords(appendText(dst, "flags"), proto, "", e.access)
	dst = resp.AppendMapHeader(appendText(dst, "begin_search"), proto, 2)
	dst = appendText(appendText(dst, "type"), "index")
	dst = resp.AppendMapHeader(appendText(dst, "spec"), proto, 1)
	dst = appendNumber(appendText(dst, "index"), 1)
	dst = resp.AppendMapHeader(appendText(dst, "find_keys"), proto, 2)
	dst = appendText(appendText(dst, "type"), "range")
	dst = resp.AppendMapHeader(appendText(dst, "spec"), proto, 3)
	dst = appendNumber(appendText(dst, "lastkey"), 0)
	dst = appendNumber(appendText(dst, "keystep"), 1)
	return appendNumber(appendText(dst, "limit"), 0)
}

// appendDocs appends the name and its description in the shape of COMMAND DOCS.
func (e *lockEntry) appendDocs(dst []byte, proto int) []byte {
	dst = appendText(dst, e.name)
	dst = resp.AppendMapHeader(dst, proto, 5)
	dst = appendText(appendText(dst, "summary"), e.summary)
	dst = appendText(appendText(dst, "since"), lockSince)
	dst = appendText(appendText(dst, "group"), lockGroup)
	dst = appendText(appendText(dst, "complexity"), e.complexity)
	return appendArguments(appendText(dst, "arguments"), proto, e.arguments)
}

func appendArguments(dst []byte, proto int, args []lockArgument) []byte {
	dst = appendHeader(dst, '*', len(args))
	for _, a := range args {
		dst = a.append(dst, proto)
	}
	return dst
}

func (a lockArgument) append(dst []byte, proto int) []byte {
	n := 2
	for _, there := range []bool{a.kind == "key", a.token != "", a.optional, a.oneOf != nil} {
		if there {
			n++
		}
	}
	dst = resp.AppendMapHeader(dst, proto, n)
	dst = appendText(appendText(dst, "name"), a.name)
	dst = appendText(appendText(dst, "type"), a.kind)
	if a.kind == "key" {
		dst = appendNumber(appendText(dst, "key_spec_index"), 0)
	}
	if a.token != "" {
		dst = appendText(appendText(dst, "token"), a.token)
	}
	if a.optional {
		dst = appendWords(appendText(dst, "flags"), proto, "", []string{"optional"})
	}
	if a.oneOf != nil {
		dst = appendArguments(appendText(dst, "arguments"), proto, a.oneOf)
	}
	return dst
}

// appendWords appends a set of simple strings, each with the prefix.
func appendWords(dst []byte, proto int, prefix string, words []string) []byte {
	dst = appendSetHeader(dst, proto, len(words))
	for _, w := range words {
		dst = append(append(append(append(dst, '+'), prefix...), w...), '\r', '\n')
	}
	return dst
}

// appendSetHeader appends the header of a set, which RESP2 has as an array.
func appendSetHeader(dst []byte, proto, n int) []byte {
	if proto >= 3 {
		return appendHeader(dst, '~', n)
	}
	return appendHeader(dst, '*', n)
}

func appendText[T []byte | string](dst []byte, s T) []byte {
	dst = appendHeader(dst, '$', len(s))
	return append(append(dst, s...), '\r', '\n')
}

func appendNumber(dst []byte, n int) []byte { return appendHeader(dst, ':', n) }

func appendHeader(dst []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(dst, kind), int64(n), 10), '\r', '\n')
}
