// Package command says what each command is: how it may travel to Redis, whether it may change data or wait for others,
// and what Redis says of the lock commands if it is asked for its commands. It has no state and does no I/O; tables are
// immutable.
package command

import (
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Policy says how a command may travel.
type Policy uint8

// The policies. A pin is a connection of the session's own.
const (
	Shared        Policy = iota // on the session's lane
	PinOnce                     // on a pin, for this command
	PinSpent                    // on a pin, for this command; the pin is closed then
	PinForever                  // on a pin, for the rest of the session unless Redis refuses
	PinRaw                      // as PinForever, on a pin whose bytes are not read any more
	Replication                 // REPLCONF: as PinForever, but Redis does not answer all of it
	PinAfterWrite               // on a pin whose last write is the session's: WAIT
	Transaction                 // MULTI … EXEC, WATCH …: on a pin until the transaction ends
	PubSub                      // on a pin until the last subscription ends
	Identity                    // AUTH, HELLO, SELECT: on a pin, or without credentials on a lane of the next identity
	Local                       // session state, kept here; Redis judges the right to most of it
	AboutClients                // CLIENT LIST, KILL, UNBLOCK: about other clients of the proxy
	Lock                        // the lock commands
	Augmented                   // as Shared; the proxy puts its own part into the reply
	byArguments                 // the arguments decide: see byArgument
)

// overrides are the commands that Redis's own flags do not describe well enough. Everything else is decided by the
// flags: blocking and module commands are pinned once, commands that Redis does not list are pinned for the rest of the
// session once it has accepted one, all others are shared.
var overrides = map[string]Policy{
	"auth": Identity, "hello": Identity, "select": Identity,
	"reset": Local, "quit": Local,
	"multi": Transaction, "exec": Transaction, "discard": Transaction, "watch": Transaction, "unwatch": Transaction,
	"subscribe": PubSub, "psubscribe": PubSub, "ssubscribe": PubSub,
	"unsubscribe": PubSub, "punsubscribe": PubSub, "sunsubscribe": PubSub,
	"wait": PinAfterWrite, "waitaof": PinAfterWrite,
	"monitor": PinRaw, "sync": PinRaw, "psync": PinRaw, "replconf": Replication,
	"asking": PinForever, "readonly": PinForever, "readwrite": PinForever, "himport": PinForever,
	"shutdown": PinSpent, // it may wait for replicas
	"debug":    PinSpent, // SLEEP, RELOAD: others are served, or told why not, meanwhile
}

// byArgument are the commands whose arguments matter. args includes the command's name.
var byArgument = map[string]func(args [][]byte) Policy{
	"client":     clientPolicy,
	"xread":      streamReadPolicy,
	"xreadgroup": streamReadPolicy,
	"script":     scriptPolicy,
	"function":   scriptPolicy,
	"info":       infoPolicy,
	"command":    commandPolicy,
}

// clientPolicy keeps here what clients say of themselves, and speaks of the proxy's clients where Redis speaks of its
// own. The other subcommands concern the connection that they are sent on. So it must be the session's own, unless they
// say what is the case on every lane anyhow.
func clientPolicy(args [][]byte) Policy {
	switch sub := Keyword(args, 1); sub {
	case "setname", "getname", "setinfo", "reply", "maint_notifications":
		return Local
	case "list", "kill", "unblock":
		return AboutClients
	case "id", "info", "getredir", "trackinginfo":
		return Augmented
	case "help", "", "caching":
		return Shared
	case "pause", "unpause":
		return PinOnce // a paused lane must not hold up the command that ends the pause
	case "tracking", "no-evict", "no-touch":
		if len(args) == 3 && Keyword(args, 2) == "off" {
			return Shared
		}
	}
	return PinForever
}

// streamReadPolicy: XREAD and XREADGROUP wait only if they say BLOCK. Their options stand before STREAMS, in any order,
// and each has a fixed number of arguments, which may be any words. Only a command whose options are all known not to
// wait is shared: a command that is not known here may wait.
func streamReadPolicy(args [][]byte) Policy {
	for i := 1; i < len(args); i++ {
		switch Keyword(args, i) {
		case "count":
			i++
		case "group":
			i += 2
		case "noack":
		case "streams":
			return Shared
		default:
			return PinOnce
		}
	}
	return PinOnce
}

// scriptPolicy: the debugger changes what EVAL does on that connection, and KILL must overtake the script or function
// that the lane may be waiting for.
func scriptPolicy(args [][]byte) Policy {
	switch Keyword(args, 1) {
	case "debug":
		return PinForever
	case "kill":
		return PinOnce
	}
	return Shared
}

// infoPolicy: one section is ours, and one counts our clients. Redis is asked all the same, because it knows which
// users may ask.
func infoPolicy(args [][]byte) Policy {
	if IsOwnInfo(args) || clients.Counted(args[1:]) {
		return Augmented
	}
	return Shared
}

// commandPolicy: COMMAND's questions about commands that we have are answered with them.
func commandPolicy(args [][]byte) Policy {
	sub := Keyword(args, 1)
	names := args[min(len(args), 2):]
	switch sub {
	case "", "count", "list":
		return Augmented
	case "getkeys", "getkeysandflags":
		names = names[:min(len(names), 1)]
	case "info", "docs":
		if len(names) == 0 {
			return Augmented
		}
	default:
		return Shared
	}
	if len(names) <= mostNames && slices.ContainsFunc(names, grammar.IsVerb) {
		return Augmented
	}
	return Shared
}

// mostNames is how many names a COMMAND INFO or DOCS may have for which the proxy edits the answer. An entry of the
// proxy's takes 4 KB and 14 microseconds, and a client may name a command as often as it likes.
const mostNames = 512

// IsOwnInfo reports whether an INFO asks for the proxy's own section.
func IsOwnInfo(args [][]byte) bool { return len(args) == 2 && Keyword(args, 1) == "lockproxy" }

// Keyword is the i-th argument as a keyword, in lower case, or "" if there is none. As in Redis, only ASCII letters
// have two cases. An argument longer than any keyword becomes "?", which is no keyword.
func Keyword(args [][]byte, i int) string {
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

// Row is one row of the policy table.
type Row struct {
	Name   string // lower case
	Policy Policy
	Title  string            // its name in CLIENT LIST; empty: Redis does not have it
	subs   map[string]string // the same for its subcommands, by their names; nil: it has none
	form   *commands.Command // as Redis describes it; nil: it does not
	Writes bool              // it may change data, so Redis may hold it back
	Script bool              // it runs a script of the client's
	Keys   commands.Spec     // where its keys are

	// Barrier: other clients may learn by the command of what happened before. In a cluster it is sent when nothing is
	// outstanding.
	Barrier bool
}

// Is reports whether a name, in upper or lower case, is the command's.
func (c *Row) Is(name []byte) bool { return commands.Is(name, c.Name) }

// PolicyFor is the command's policy for these arguments.
func (c *Row) PolicyFor(args [][]byte) Policy {
	if c.Policy == byArguments {
		return byArgument[c.Name](args)
	}
	return c.Policy
}

// HasSubcommands reports whether the command has subcommands.
func (c *Row) HasSubcommands() bool { return c.subs != nil }

// TitleOf is what CLIENT LIST says of a whole command in array form, as the client's last one; empty: Redis does not
// have it.
func (c *Row) TitleOf(raw []byte) string {
	if c.subs == nil {
		return c.Title
	}
	var two [2][]byte
	args := resp.FirstArgs(raw, two[:0], 2)
	switch {
	case len(args) < 2:
		return c.Title
	case len(args[1]) > maxName:
		return ""
	}
	var lower [maxName]byte
	return c.subs[string(lowered(args[1], &lower))]
}

// Malformed reports whether Redis refuses a command with these arguments whatever the state of its connection is: Redis
// does not have the command or its subcommand, or the number of arguments is wrong.
func (c *Row) Malformed(args [][]byte) bool {
	if c.form == nil {
		return c.Title == ""
	}
	arity := c.form.Arity
	if c.form.Subcommands != nil && len(args) > 1 {
		arity = c.form.Subcommands[Keyword(args, 1)]
	}
	return arity == 0 || arity > 0 && len(args) != arity || len(args) < -arity
}

// MayWait reports whether the command, which has policy p for its arguments, may wait for others before it is answered.
func (c *Row) MayWait(p Policy) bool {
	return p == PinOnce || p == PinSpent || p == PinAfterWrite || c == unlisted
}

// Table has a row for every command that Redis lists and for our own. It is immutable.
type Table struct {
	source *commands.Table
	rows   map[string]*Row
}

// maxName bounds the names that are looked up; longer ones are unknown.
const maxName = 64

// unlisted stands for every command that Redis does not list: it may change its connection in unknown ways.
var unlisted = &Row{Name: "unlisted", Policy: PinForever}

// NewTable makes the table for a Redis that lists these commands. verbs are the names of the lock commands.
func NewTable(src *commands.Table, verbs []string) *Table {
	t := &Table{source: src, rows: make(map[string]*Row, src.Len()+len(verbs))}
	for _, c := range src.All() {
		t.rows[c.Name] = &Row{
			Name: c.Name, Policy: flagPolicy(c), Title: c.Name, subs: subTitles(c), form: c,
			Writes: c.Flags&commands.Changes != 0, Script: runsScript[c.Name], Keys: c.Keys,
			Barrier: c.Name == "publish" || c.Name == "spublish",
		}
	}
	decide := func(name string, p Policy) {
		if t.rows[name] == nil { // Redis does not have it
			t.rows[name] = &Row{Name: name}
		}
		t.rows[name].Policy = p
	}
	for name, p := range overrides {
		decide(name, p)
	}
	for name := range byArgument {
		decide(name, byArguments)
	}
	for _, verb := range verbs {
		name := strings.ToLower(verb)
		t.rows[name] = &Row{Name: name, Policy: Lock, Title: name, Writes: true}
	}
	return t
}

// runsScript are the commands that run a script. Redis gives the same flags and categories to those that manage
// scripts.
var runsScript = map[string]bool{
	"eval": true, "evalsha": true, "eval_ro": true, "evalsha_ro": true, "fcall": true, "fcall_ro": true,
}

func flagPolicy(c *commands.Command) Policy {
	if c.Flags&(commands.Blocking|commands.Module) != 0 {
		return PinOnce
	}
	return Shared
}

// subTitles are Redis's full names of a command's subcommands; nil: it has none.
func subTitles(c *commands.Command) map[string]string {
	if len(c.Subcommands) == 0 {
		return nil
	}
	titles := make(map[string]string, len(c.Subcommands))
	for sub := range c.Subcommands {
		titles[sub] = c.Name + "|" + sub
	}
	return titles
}

// IsOf reports whether the table was made from that of Redis.
func (t *Table) IsOf(src *commands.Table) bool { return t.source == src }

// Lookup finds the row for a name in any case. It does not allocate.
func (t *Table) Lookup(name []byte) *Row {
	if len(name) > maxName {
		return unlisted
	}
	var lower [maxName]byte
	if c, ok := t.rows[string(lowered(name, &lower))]; ok {
		return c
	}
	return unlisted
}
