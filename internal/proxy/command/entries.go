package command

import (
	"slices"

	"lockproxy/internal/resp"
)

// entry is what COMMAND says of one lock command. Every reply about it is built from this.
type entry struct {
	name       string
	arity      int      // arguments with the name; negative: at least that many
	flags      []string // Redis's words for how the command behaves
	categories []string // of the ACL, without '@'
	tips       []string
	access     []string // what it does to its key, the first argument; nil: it has no key

	summary, complexity string
	arguments           []argument
}

// argument is one argument of a lock command as COMMAND DOCS describes it.
type argument struct {
	name, kind string // kind is one of Redis's argument types
	token      string // the option's name; empty: a positional argument
	optional   bool
	oneOf      []argument // the alternatives, for kind "oneof"
}

// What COMMAND DOCS says of all lock commands. The group makes "help @lock" of redis-cli list them.
const (
	lockGroup = "lock"
	lockSince = "0.1.0" // of lockproxy
)

var (
	argKey     = argument{name: "key", kind: "key"}
	argWait    = argument{name: "milliseconds", kind: "integer", token: "WAIT", optional: true}
	argPX      = argument{name: "milliseconds", kind: "integer", token: "PX"}
	argEX      = argument{name: "seconds", kind: "integer", token: "EX"}
	argOwner   = argument{name: "id", kind: "string", token: "OWNER", optional: true}
	argGrace   = argument{name: "milliseconds", kind: "integer", token: "GRACE", optional: true}
	argMaxHold = argument{name: "milliseconds", kind: "integer", token: "MAXHOLD", optional: true}
	argFence   = argument{name: "token", kind: "integer", token: "FENCE", optional: true}
	argMatch   = argument{name: "pattern", kind: "pattern", token: "MATCH", optional: true}
	argCount   = argument{name: "count", kind: "integer", token: "COUNT", optional: true}

	acquireArguments = []argument{
		argKey, argWait,
		{name: "lease", kind: "oneof", optional: true, oneOf: []argument{argPX, argEX}},
		argOwner, argGrace, argMaxHold,
	}
)

// entries describe the lock commands. A lock command is a script for Redis, so a user needs the category scripting for
// it. It is refused inside a transaction and unknown to Redis's own scripts.
var entries = []entry{
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
		arguments: []argument{argKey, argOwner, argFence},
	},
	{
		name: "extendlock", arity: -4, flags: []string{"write", "noscript", "no_multi"},
		categories: []string{"write", "slow", "scripting"},
		access:     []string{"RW", "access", "update"},
		summary:    "Set how long a lock that is held lasts from now on", complexity: "O(1)",
		arguments: []argument{argKey, {name: "lease", kind: "oneof", oneOf: []argument{argPX, argEX}}, argOwner},
	},
	{
		name: "lockinfo", arity: 2, flags: []string{"readonly", "noscript", "no_multi"},
		categories: []string{"read", "slow", "scripting"}, tips: []string{"nondeterministic_output"},
		access:  []string{"RO", "access"},
		summary: "Describe the holder of a lock and those who wait for it", complexity: "O(N) with N being the number of fair waiters",
		arguments: []argument{argKey},
	},
	{
		name: "locklist", arity: -1, flags: []string{"noscript", "no_multi", "loading", "stale"},
		categories: []string{"slow"}, tips: []string{"nondeterministic_output"},
		summary: "List the locks that are held through this proxy", complexity: "O(N) with N being the number of these locks",
		arguments: []argument{argMatch, argCount},
	},
	{
		name: "forceunlock", arity: 2, flags: []string{"write", "noscript", "no_multi"},
		categories: []string{"write", "slow", "scripting"},
		access:     []string{"RW", "access", "delete"},
		summary:    "Remove a lock, whoever holds it", complexity: "O(1)",
		arguments: []argument{argKey},
	},
}

// entryOf finds the entry of a lock command by its name in lower case; nil if it is none.
func entryOf(name string) *entry {
	i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
	if i < 0 {
		return nil
	}
	return &entries[i]
}

// accepts reports whether so many arguments, with the name, may be right.
func (e *entry) accepts(argc int) bool { return argc == e.arity || e.arity < 0 && argc >= -e.arity }

// appendInfo appends the entry in the shape of COMMAND INFO of Redis 7.
func (e *entry) appendInfo(dst []byte, proto int) []byte {
	dst = resp.AppendHeader(dst, '*', 10)
	dst = resp.AppendBulk(dst, e.name)
	dst = resp.AppendInteger(dst, e.arity)
	dst = appendWords(dst, proto, "", e.flags)
	position := 0
	if e.access != nil {
		position = 1
	}
	for range 3 { // first key, last key, step
		dst = resp.AppendInteger(dst, position)
	}
	dst = appendWords(dst, proto, "@", e.categories)
	dst = resp.AppendSetHeader(dst, proto, len(e.tips))
	for _, tip := range e.tips {
		dst = resp.AppendBulk(dst, tip)
	}
	dst = e.appendKeySpecs(dst, proto)
	return resp.AppendSetHeader(dst, proto, 0) // subcommands
}

// appendKeySpecs says that the first argument is the key, the only one.
func (e *entry) appendKeySpecs(dst []byte, proto int) []byte {
	if e.access == nil {
		return resp.AppendSetHeader(dst, proto, 0)
	}
	dst = resp.AppendSetHeader(dst, proto, 1)
	dst = resp.AppendMapHeader(dst, proto, 3)
	dst = appendWords(resp.AppendBulk(dst, "flags"), proto, "", e.access)
	dst = resp.AppendMapHeader(resp.AppendBulk(dst, "begin_search"), proto, 2)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "type"), "index")
	dst = resp.AppendMapHeader(resp.AppendBulk(dst, "spec"), proto, 1)
	dst = resp.AppendInteger(resp.AppendBulk(dst, "index"), 1)
	dst = resp.AppendMapHeader(resp.AppendBulk(dst, "find_keys"), proto, 2)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "type"), "range")
	dst = resp.AppendMapHeader(resp.AppendBulk(dst, "spec"), proto, 3)
	dst = resp.AppendInteger(resp.AppendBulk(dst, "lastkey"), 0)
	dst = resp.AppendInteger(resp.AppendBulk(dst, "keystep"), 1)
	return resp.AppendInteger(resp.AppendBulk(dst, "limit"), 0)
}

// appendDocs appends the name and its description in the shape of COMMAND DOCS.
func (e *entry) appendDocs(dst []byte, proto int) []byte {
	dst = resp.AppendBulk(dst, e.name)
	dst = resp.AppendMapHeader(dst, proto, 5)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "summary"), e.summary)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "since"), lockSince)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "group"), lockGroup)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "complexity"), e.complexity)
	return appendArguments(resp.AppendBulk(dst, "arguments"), proto, e.arguments)
}

func appendArguments(dst []byte, proto int, args []argument) []byte {
	dst = resp.AppendHeader(dst, '*', len(args))
	for _, a := range args {
		dst = a.append(dst, proto)
	}
	return dst
}

func (a argument) append(dst []byte, proto int) []byte {
	n := 2
	for _, there := range []bool{a.kind == "key", a.token != "", a.optional, a.oneOf != nil} {
		if there {
			n++
		}
	}
	dst = resp.AppendMapHeader(dst, proto, n)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "name"), a.name)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "type"), a.kind)
	if a.kind == "key" {
		dst = resp.AppendInteger(resp.AppendBulk(dst, "key_spec_index"), 0)
	}
	if a.token != "" {
		dst = resp.AppendBulk(resp.AppendBulk(dst, "token"), a.token)
	}
	if a.optional {
		dst = appendWords(resp.AppendBulk(dst, "flags"), proto, "", []string{"optional"})
	}
	if a.oneOf != nil {
		dst = appendArguments(resp.AppendBulk(dst, "arguments"), proto, a.oneOf)
	}
	return dst
}

// appendWords appends a set of simple strings, each with the prefix.
func appendWords(dst []byte, proto int, prefix string, words []string) []byte {
	dst = resp.AppendSetHeader(dst, proto, len(words))
	for _, w := range words {
		dst = append(append(append(append(dst, '+'), prefix...), w...), '\r', '\n')
	}
	return dst
}
