package grammar

import "strings"

// Spec is everything that is to be known of one verb: what Parse accepts, what COMMAND and COMMAND DOCS answer, and
// what the tables of the documents say. It is never written.
type Spec struct {
	Verb      Verb
	Name      string // in lower case
	Arguments []Argument

	Flags      []string // Redis's words for how the command behaves
	Categories []string // of the ACL, without '@'
	Tips       []string
	Access     []string // what it does to its key, the first argument; nil: it has no key
	Summary    string
	Complexity string

	Does, Replies string // in docs/LOCKS.md

	// Made from Arguments.
	keys     int
	options  []named // allowed
	required option  // one of them must be given
}

// named is an option with its Token, in lower case.
type named struct {
	name   string
	option option
}

// Argument is one argument as COMMAND DOCS describes it. Option and its value are one argument.
type Argument struct {
	Name, Type string     // Type is one of Redis's argument types
	Token      string     // the option's name; empty: a positional argument
	Optional   bool       // it may be left out
	OneOf      []Argument // the alternatives, for Type "oneof"

	Value  string // the name of the value in Syntax
	Means  string // there
	Absent string // the same without the option; empty: there is nothing to say

	option option
}

// What COMMAND DOCS says of all lock commands. The group makes "help @lock" of redis-cli list them.
const (
	Group = "lock"
	Since = "0.1.0" // of lockproxy
)

var (
	argKey  = Argument{Name: "key", Type: "key", Value: "key"}
	argWait = Argument{
		Name: "milliseconds", Type: "integer", Token: "WAIT", Optional: true, Value: "ms", option: optWait,
		Means: "the longest wait; 0: do not wait",
	}
	argPX    = Argument{Name: "milliseconds", Type: "integer", Token: "PX", Value: "ms", option: optPX}
	argEX    = Argument{Name: "seconds", Type: "integer", Token: "EX", Value: "s", option: optEX}
	argLease = Argument{
		Name: "lease", Type: "oneof", OneOf: []Argument{argPX, argEX},
		Means:  "a fixed lease, never renewed. For `EXTENDLOCK`: the new lease",
		Absent: "a lease of `lock.lease`, renewed every third of it while the connection is open",
	}
	argOwner = Argument{
		Name: "id", Type: "string", Token: "OWNER", Optional: true, Value: "id", option: optOwner,
		Means: "the name of the [owner](#owners): 1 to 256 bytes, no braces, not `fence` or `mode`",
	}
	argGrace = Argument{
		Name: "milliseconds", Type: "integer", Token: "GRACE", Optional: true, Value: "ms", option: optGrace,
		Means: "when the connection ends, shorten the lease to this; 0 releases at once",
	}
	argMaxHold = Argument{
		Name: "milliseconds", Type: "integer", Token: "MAXHOLD", Optional: true, Value: "ms", option: optMaxHold,
		Means: "let the lock end by then, even if its client is still connected; 0: no limit. " +
			"Without `PX`, `EX`, the default is `lock.max-hold`",
	}
	argSync = Argument{
		Name: "replicas", Type: "integer", Token: "SYNC", Optional: true, Value: "n", option: optSync,
		Means: "answer only when n replicas [have the grant](FAILURES.md#sync) (default: `lock.sync`), else `-NOTSYNCED`",
	}
	argFence = Argument{
		Name: "token", Type: "integer", Token: "FENCE", Optional: true, Value: "n", option: optFence,
		Means: "the grant with this fence. Without `OWNER` it works on any connection, and `UNLOCK` releases all holds",
	}
	argShared = Argument{
		Name: "shared", Type: "pure-token", Token: "SHARED", option: optShared,
		Means: "a [shared hold](#shared-locks): alongside other shared holders, but not alongside an exclusive one",
	}
	argLimit = Argument{
		Name: "limit", Type: "integer", Token: "LIMIT", Value: "n", option: optLimit,
		Means: "one permit of [at most n](#at-most-n-holders), 1 to 2,147,483,647",
	}
	argNote = Argument{
		Name: "text", Type: "string", Token: "NOTE", Optional: true, Value: "text", option: optNote,
		Means: "who holds the lock and why, up to 256 bytes: `LOCKINFO` and lists show it at every proxy",
	}
	argMode = Argument{
		Name: "mode", Type: "oneof", Optional: true, OneOf: []Argument{argShared, argLimit},
	}
	argMatch = Argument{
		Name: "pattern", Type: "pattern", Token: "MATCH", Optional: true, Value: "pattern", option: optMatch,
		Means: "list only keys that match, as in `KEYS`; up to 1 KiB",
	}
	argCount = Argument{
		Name: "count", Type: "integer", Token: "COUNT", Optional: true, Value: "n", option: optCount,
		Means: "list at most n locks",
	}
)

// acquire is what the verbs that acquire have in common.
var acquire = Spec{
	Arguments:  []Argument{argKey, argMode, argWait, optional(argLease), argOwner, argGrace, argMaxHold, argSync, argNote},
	Flags:      []string{"write", "denyoom", "noscript", "blocking", "no_multi"},
	Categories: []string{"write", "slow", "blocking", "scripting"},
	Tips:       []string{"nondeterministic_output"},
	Access:     []string{"RW", "access", "update"},
}

// table is the one place that says what the lock commands look like. A lock command is a script for Redis, so a user
// needs the category scripting for it. It is refused inside a transaction and unknown to Redis's own scripts.
var table = complete([]Spec{
	acquire.with(Spec{
		Verb: Lock, Name: "lock",
		Summary: "Acquire a lock, waiting until it is free, and return its fencing token", Complexity: "O(1)",
		Does:    "acquires the lock; waits until it is granted, or for `WAIT ms`. A new client may overtake waiters",
		Replies: "the fence, an integer ≥ 1; null if it was not granted in time",
	}),
	acquire.with(Spec{
		Verb: TryLock, Name: "trylock",
		Summary: "Acquire a lock if it is free, and return its fencing token", Complexity: "O(1)",
		Does: "like `LOCK`, but does not wait unless `WAIT` is given", Replies: "the same",
	}),
	acquire.with(Spec{
		Verb: FairLock, Name: "fairlock",
		Summary:    "Acquire a lock in the order of requests, and return its fencing token",
		Complexity: "O(log(N)) with N being the number of fair waiters",
		Does:       "like `LOCK`, but first come, first served, across all proxies and Redisson clients", Replies: "the same",
	}),
	{
		Verb: Unlock, Name: "unlock", Arguments: []Argument{argKey, optional(argShared), argOwner, argFence},
		Flags: []string{"write", "noscript", "no_multi"}, Categories: []string{"write", "slow", "scripting"},
		Access:  []string{"RW", "access", "delete"},
		Summary: "Release one hold of a lock", Complexity: "O(1)",
		Does: "releases one hold", Replies: "`1`: released; `0`: one hold fewer, still held",
	},
	{
		Verb: ExtendLock, Name: "extendlock",
		Arguments: []Argument{argKey, argLease, optional(argShared), argOwner, argFence},
		Flags:     []string{"write", "noscript", "no_multi"}, Categories: []string{"write", "slow", "scripting"},
		Access:  []string{"RW", "access", "update"},
		Summary: "Set a new lease for a lock that is held", Complexity: "O(1)",
		Does: "sets a new lease", Replies: "`1`",
	},
	{
		Verb: LockInfo, Name: "lockinfo", Arguments: []Argument{argKey},
		Flags: []string{"readonly", "noscript", "no_multi"}, Categories: []string{"read", "slow", "scripting"},
		Tips: []string{"nondeterministic_output"}, Access: []string{"RO", "access"},
		Summary:    "Describe the holder and the waiters of a lock",
		Complexity: "O(N) with N being the number of fair waiters",
		Does:       "describes the holder and the waiters",
		Replies:    "a map of them; null if free",
	},
	{
		Verb: LockList, Name: "locklist", Arguments: []Argument{argMatch, argCount},
		Flags: []string{"noscript", "no_multi", "loading", "stale"}, Categories: []string{"slow"},
		Tips:       []string{"nondeterministic_output"},
		Summary:    "List the locks that are held through this proxy",
		Complexity: "O(N) with N being the number of these locks",
		Does:       "lists the locks that clients of the same user and database hold through this proxy",
		Replies:    "a map for each hold",
	},
	{
		Verb: ForceUnlock, Name: "forceunlock", Arguments: []Argument{argKey, argOwner},
		Flags: []string{"write", "noscript", "no_multi"}, Categories: []string{"write", "slow", "scripting"},
		Access:  []string{"RW", "access", "delete"},
		Summary: "Remove a lock of any holder", Complexity: "O(1)",
		Does:    "removes a lock of any holder, or of one `OWNER`, and tells the holders",
		Replies: "`1`, or `0` if there was none",
	},
})

// with returns the common part with the rest of a spec.
func (s Spec) with(rest Spec) Spec {
	rest.Arguments, rest.Flags, rest.Categories = s.Arguments, s.Flags, s.Categories
	rest.Tips, rest.Access = s.Tips, s.Access
	return rest
}

func optional(a Argument) Argument {
	a.Optional = true
	return a
}

// complete adds what follows from the arguments.
func complete(specs []Spec) []Spec {
	for i := range specs {
		s := &specs[i]
		for _, a := range s.Arguments {
			for _, one := range a.alternatives() {
				if one.Token != "" {
					s.options = append(s.options, named{strings.ToLower(one.Token), one.option})
				}
			}
			switch {
			case a.Type == "key":
				s.keys++
			case !a.Optional:
				s.required |= a.options()
			}
		}
	}
	return specs
}

// alternatives are the arguments of which one is given: the argument itself, unless it stands for others.
func (a Argument) alternatives() []Argument {
	if a.OneOf == nil {
		return []Argument{a}
	}
	return a.OneOf
}

// options is the options that the argument stands for.
func (a Argument) options() (all option) {
	for _, one := range a.alternatives() {
		all |= one.option
	}
	return all
}

// Specs lists all verbs. The result must not be written to.
func Specs() []Spec { return table }

// Find returns the spec of a name in any case; nil: it is no lock command. It does not allocate.
func Find[T string | []byte](name T) *Spec {
	if len(name) < len("lock") || len(name) > len("forceunlock") {
		return nil
	}
	for i := range table {
		if foldEqual(name, table[i].Name) {
			return &table[i]
		}
	}
	return nil
}

// Verbs lists the names of the lock commands in lower case.
func Verbs() []string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].Name
	}
	return names
}

// option finds an option of the verb by its name, in any case; each takes one value. 0: the verb has no such option. It
// does not allocate.
func (s *Spec) option(name []byte) option {
	for i := range s.options {
		if foldEqual(name, s.options[i].name) {
			return s.options[i].option
		}
	}
	return 0
}

// fewest is the least number of arguments, the name included.
func (s *Spec) fewest() int {
	if s.required != 0 {
		return 1 + s.keys + 2
	}
	return 1 + s.keys
}

// Arity is the number of arguments with the name; negative: at least that many.
func (s *Spec) Arity() int {
	if s.more() {
		return -s.fewest()
	}
	return s.fewest()
}

// Accepts reports whether a command may have n arguments, its name included.
func (s *Spec) Accepts(argc int) bool {
	return argc == s.fewest() || s.more() && argc > s.fewest()
}

// more reports whether a command may have more than the fewest arguments.
func (s *Spec) more() bool { return len(s.options) > 0 }

// foldEqual compares with a lower-case ASCII word, ignoring case.
func foldEqual[T string | []byte](b T, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range len(b) {
		c := b[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
