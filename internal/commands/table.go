// Package commands knows what Redis says of its commands: the table that decides how each may travel, and where the
// keys of a command stand.
package commands

import (
	_ "embed" // the snapshot
	"errors"
	"slices"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Flags of a command that decide how it may travel.
type Flags uint8

// The flags that are read from Redis's COMMAND.
const (
	Blocking Flags = 1 << iota // may wait: BLPOP, XREAD, WAIT …
	Module                     // belongs to a module, which may block a client without announcing it
	Changes                    // it, or a subcommand, may change data, so Redis may hold it back (CLIENT PAUSE … WRITE)
)

// Command is Redis's description of one of its commands.
type Command struct {
	Name  string // lower case
	Arity int    // arguments with the name; negative: at least that many
	Flags Flags

	// Subcommands are the arities of its subcommands, by their names without the container's, lower case; nil if there
	// are none.
	Subcommands map[string]int

	Keys Spec // of the command, or, as far as is known, of all its subcommands that have keys
}

// Table is the set of commands that Redis has. It is immutable.
type Table struct {
	commands map[string]*Command
	order    []*Command
}

// Lookup finds a command by its name in lower case; nil if Redis does not list it.
func (t *Table) Lookup(name string) *Command { return t.commands[name] }

// Len is the number of commands, without subcommands.
func (t *Table) Len() int { return len(t.order) }

// All lists the commands in Redis's order. The caller must not change them.
func (t *Table) All() []*Command { return t.order }

// snapshotRESP is the answer of a Redis 7.0.15 to COMMAND in RESP2. It is used if the upstream's own table is not
// available: its ACL refuses COMMAND, or the upstream is a stand-in that lists no commands. TestSnapshotIsRedisAnswer
// rewrites it with -update.
//
//go:embed snapshot.resp
var snapshotRESP []byte

// Snapshot is the stored answer, for clients of an upstream without COMMAND. The caller must not change it.
func Snapshot() []byte { return snapshotRESP }

// BuiltIn is the table that the snapshot makes.
func BuiltIn() *Table {
	t, err := Parse(snapshotRESP)
	if err != nil {
		panic("BUG: command snapshot: " + err.Error())
	}
	return t
}

var errNoTable = errors.New("not a list of commands")

// Parse reads the answer to COMMAND in RESP2.
func Parse(b []byte) (*Table, error) {
	v, _, err := resp.Decode(b)
	if err != nil {
		return nil, err
	}
	t := &Table{commands: make(map[string]*Command, len(v.Elems))}
	for _, e := range v.Elems {
		c, err := parseCommand(e)
		if err != nil {
			return nil, err
		}
		t.commands[c.Name] = c
		t.order = append(t.order, c)
	}
	return t, nil
}

// parseCommand reads one entry: name, arity, flags, first key, last key, step, ACL categories, tips, key specs,
// subcommands. The last four exist since Redis 7.
func parseCommand(v resp.Value) (*Command, error) {
	if len(v.Elems) < 3 {
		return nil, errNoTable
	}
	c := &Command{Name: string(v.Elems[0].Str), Arity: int(v.Elems[1].Int)}
	for _, f := range v.Elems[2].Elems {
		switch string(f.Str) {
		case "blocking":
			c.Flags |= Blocking
		case "module":
			c.Flags |= Module
		}
	}
	if slices.ContainsFunc(v.Elems[2].Elems, changes) || mayReplicate[c.Name] {
		c.Flags |= Changes
	}
	blocks := func(v resp.Value) bool { return string(v.Str) == "@blocking" }
	if len(v.Elems) >= 7 && slices.ContainsFunc(v.Elems[6].Elems, blocks) {
		c.Flags |= Blocking // Redis 6 has no such flag yet
	}
	c.Keys = keysOf(v)
	if len(v.Elems) >= 10 && len(v.Elems[9].Elems) > 0 {
		c.Subcommands = map[string]int{}
		for _, sub := range v.Elems[9].Elems {
			if len(sub.Elems) == 0 {
				return nil, errNoTable
			}
			if len(sub.Elems) > 2 && slices.ContainsFunc(sub.Elems[2].Elems, changes) {
				c.Flags |= Changes
			}
			if c.Keys.Keyless() {
				c.Keys = keysOf(sub)
			}
			name := string(sub.Elems[0].Str)
			if len(name) > len(c.Name)+1 {
				arity := -1
				if len(sub.Elems) > 1 {
					arity = int(sub.Elems[1].Int)
				}
				c.Subcommands[name[len(c.Name)+1:]] = arity
			}
		}
	}
	return c, nil
}

// keysOf finds the keys of a command or subcommand. All subcommands of a container that have keys have the first one at
// the same place.
func keysOf(v resp.Value) Spec {
	switch {
	case len(v.Elems) >= 9 && len(v.Elems[8].Elems) > 0:
		return Compile(v.Elems[8])
	case len(v.Elems) >= 6:
		return Range(int(v.Elems[3].Int), int(v.Elems[4].Int), int(v.Elems[5].Int))
	}
	return Spec{}
}

// changes reports whether a flag says that a command may change data.
func changes(flag resp.Value) bool { return string(flag.Str) == "write" }

// mayReplicate are the commands besides those flagged write that Redis holds back with them, because they may have
// effects on replicas. COMMAND does not list that flag.
var mayReplicate = map[string]bool{
	"eval": true, "evalsha": true, "fcall": true, "pfcount": true, "publish": true, "script": true, "spublish": true,
}
