package proxy

import (
	"strings"

	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/upstream"
)

// policy says how a command may travel.
type policy uint8

const (
	shared   policy = iota // on the session's lane
	pinOnce                // on a pin, for this command
	pinSpent               // on a pin, for this command; the pin is closed then
	pinAlive               // on a pin, for the rest of the session unless Redis refuses
	pinRaw                 // on a pin whose bytes are not read any more, for the rest of the session unless Redis refuses
	replica                // REPLCONF: as pinAlive, but some of it is not answered
	offset                 // on a pin whose last write is the session's: WAIT
	tx                     // MULTI … EXEC, WATCH …: on a pin until the transaction ends
	pubsub                 // on a pin until the last subscription ends
	identity               // AUTH, HELLO, SELECT: on a pin, which then belongs to another identity
	local                  // session state, kept and answered here
	about                  // asks or does something about the proxy's clients: CLIENT LIST
	locks                  // the lock commands
	merged                 // as shared; what is ours is put into the reply
	bySub                  // see the command's subPolicy
)

// overrides are the commands that Redis's own flags do not describe well enough. Everything else is decided by the flags:
// blocking and module commands are pinned once, commands that Redis does not list are pinned for the rest of the session once it
// has accepted one, all others are shared.
var overrides = map[string]policy{
	"auth": identity, "hello": identity, "select": identity,
	"reset": local, "quit": local,
	"multi": tx, "exec": tx, "discard": tx, "watch": tx, "unwatch": tx,
	"subscribe": pubsub, "psubscribe": pubsub, "ssubscribe": pubsub,
	"unsubscribe": pubsub, "punsubscribe": pubsub, "sunsubscribe": pubsub,
	"wait": offset, "waitaof": offset,
	"monitor": pinRaw, "sync": pinRaw, "psync": pinRaw, "replconf": replica,
	"asking": pinAlive, "readonly": pinAlive, "readwrite": pinAlive, "himport": pinAlive,
	"shutdown": pinSpent, // it may wait for replicas
	"debug":    pinSpent, // SLEEP, RELOAD: others are served, or told why not, meanwhile
	"client":   bySub, "xread": bySub, "xreadgroup": bySub, "script": bySub, "function": bySub, "info": bySub, "command": bySub,
}

// subPolicies decide where the arguments matter. args includes the command's name.
var subPolicies = map[string]func(args [][]byte) policy{
	"client":     clientPolicy,
	"xread":      streamReadPolicy,
	"xreadgroup": streamReadPolicy,
	"script":     scriptPolicy,
	"function":   functionPolicy,
	"info":       infoPolicy,
	"command":    commandPolicy,
}

// clientPolicy keeps here what clients say of themselves, and speaks of the proxy's clients where Redis speaks of its own.
// What is left is about the connection that says it, so that connection must be the session's own, unless it says what is
// the case on every lane anyhow.
func clientPolicy(args [][]byte) policy {
	switch sub := argument(args, 1); sub {
	case "setname", "getname", "setinfo", "reply", "maint_notifications":
		return local
	case "list", "kill", "unblock":
		return about
	case "id", "info", "getredir", "trackinginfo":
		return merged
	case "help", "", "caching":
		return shared
	case "pause", "unpause":
		return pinOnce // a paused lane must not hold up what ends the pause
	case "tracking", "no-evict", "no-touch":
		if len(args) == 3 && argument(args, 2) == "off" {
			return shared
		}
	}
	return pinAlive
}

// streamReadPolicy: XREAD and XREADGROUP wait only if they say BLOCK. Their options stand before STREAMS, in any order, and each
// has a fixed number of arguments, which may be any words. Only a command whose options are all known not to wait is shared:
// what is not known here may wait.
func streamReadPolicy(args [][]byte) policy {
	for i := 1; i < len(args); i++ {
		switch argument(args, i) {
		case "count":
			i++
		case "group":
			i += 2
		case "noack":
		case "streams":
			return shared
		default:
			return pinOnce
		}
	}
	return pinOnce
}

// scriptPolicy: the debugger changes what EVAL does on that connection, and KILL must overtake the script that the lane may be
// waiting for.
func scriptPolicy(args [][]byte) policy {
	switch argument(args, 1) {
	case "debug":
		return pinAlive
	case "kill":
		return pinOnce
	}
	return shared
}

// functionPolicy: as for scripts.
func functionPolicy(args [][]byte) policy {
	if argument(args, 1) == "kill" {
		return pinOnce
	}
	return shared
}

// infoPolicy: one section is ours, and one counts our clients. Redis is asked all the same, because it knows who may ask.
func infoPolicy(args [][]byte) policy {
	if isOwnInfo(args) || clients.Counted(args[1:]) {
		return merged
	}
	return shared
}

func isOwnInfo(args [][]byte) bool { return len(args) == 2 && argument(args, 1) == "lockproxy" }

// argument is the i-th argument as a keyword, in lower case, or "" if there is none. As in Redis, only ASCII letters have two
// cases. What is longer than any keyword is "?", which is none.
func argument(args [][]byte, i int) string {
	if i >= len(args) {
		return ""
	}
	if len(args[i]) > maxName {
		return "?"
	}
	var lower [maxName]byte
	return string(lowered(args[i], &lower))
}

// lowered puts a name of at most maxName bytes into lower case.
func lowered(name []byte, lower *[maxName]byte) []byte {
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	return lower[:len(name)]
}

// command is one row of the policy table.
type command struct {
	name   string // lower case
	policy policy
	sub    func(args [][]byte) policy // for bySub
	listed bool                       // Redis lists it
	shown  string                     // its name in CLIENT LIST; empty: Redis does not have it
	subs   map[string]string          // the same for its subcommands, by their names; nil: it has none
	writes bool                       // it may change data, so Redis may hold it back
	script bool                       // it runs a script of the client's
}

// policyOf is the command's policy for these arguments.
func (c *command) policyOf(args [][]byte) policy {
	if c.policy == bySub {
		return c.sub(args)
	}
	return c.policy
}

// mayWait reports whether the command, which has policy p for its arguments, may wait for others before it is answered.
func (c *command) mayWait(p policy) bool {
	return p == pinOnce || p == pinSpent || p == offset || c == unlisted
}

// policyTable has a row for every command that Redis lists and for our own. It is immutable.
type policyTable struct {
	source *upstream.Table
	rows   map[string]*command
}

// maxName bounds the names that are looked up; longer ones are unknown.
const maxName = 64

// unlisted stands for every command that Redis does not list: it may change its connection in ways nobody here knows.
var unlisted = &command{name: "unlisted", policy: pinAlive}

func newPolicyTable(src *upstream.Table, verbs []string) *policyTable {
	t := &policyTable{source: src, rows: make(map[string]*command, src.Len()+len(verbs))}
	for _, c := range src.All() {
		t.rows[c.Name] = &command{name: c.Name, policy: flagPolicy(c), listed: true, shown: c.Name, subs: subTitles(c), writes: c.Flags&upstream.Changes != 0, script: runsScript[c.Name]}
	}
	for name, p := range overrides {
		row := &command{name: name, policy: p}
		if known := t.rows[name]; known != nil {
			row.listed, row.shown, row.subs, row.writes = true, known.shown, known.subs, known.writes
		}
		if p == bySub {
			row.sub = subPolicies[name]
		}
		t.rows[name] = row
	}
	for _, verb := range verbs {
		name := strings.ToLower(verb)
		t.rows[name] = &command{name: name, policy: locks, shown: name, writes: true}
	}
	return t
}

// runsScript are the commands that run a script. Redis gives the same flags and categories to those that manage scripts.
var runsScript = map[string]bool{
	"eval": true, "evalsha": true, "eval_ro": true, "evalsha_ro": true, "fcall": true, "fcall_ro": true,
}

func flagPolicy(c *upstream.Command) policy {
	if c.Flags&(upstream.Blocking|upstream.Module) != 0 {
		return pinOnce
	}
	return shared
}

// lookup finds the row for a name in any case. It does not allocate.
func (t *policyTable) lookup(name []byte) *command {
	if len(name) > maxName {
		return unlisted
	}
	var lower [maxName]byte
	if c, ok := t.rows[string(lowered(name, &lower))]; ok {
		return c
	}
	return unlisted
}
