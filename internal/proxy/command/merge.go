package command

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// COMMAND and INFO are answered by Redis, as its ACL says, and the lock commands and the proxy's own section are put
// into its answer. All other bytes stay as Redis sent them. A reply that is not of the known shape passes whole: an
// error, or the QUEUED of a transaction, whose EXEC then answers without the lock commands.

// A Merger puts the lock commands into Redis's replies to COMMAND. It keeps the latest whole answers, of some 200 KB
// each, which are the same for all clients: cutting one takes as long as thousands of ordinary commands. The zero value
// is ready, and may be used by many goroutines.
type Merger struct {
	latest [len(wholes)][2]atomic.Pointer[merged] // by subcommand and protocol
}

// wholes are the subcommands that describe all commands if no names follow.
var wholes = [...]string{"", "list", "info", "docs"}

// merged is a reply of Redis's, and what a client gets for it. Both are read only.
type merged struct{ reply, to []byte }

// For returns what puts the lock commands into the reply to a COMMAND with these arguments, for a client of that
// version of the protocol. Its results are read only.
func (c *Merger) For(args [][]byte, proto int) func(reply []byte) []byte {
	m := merger{sub: Keyword(args, 1), proto: proto}
	for _, arg := range args[min(len(args), 2):] {
		m.args = append(m.args, string(arg))
	}
	i := slices.Index(wholes[:], m.sub)
	if i < 0 || len(m.args) > 0 {
		return m.merge
	}
	latest := &c.latest[i][min(proto, 3)-2]
	return func(reply []byte) []byte {
		if known := latest.Load(); known != nil && bytes.Equal(known.reply, reply) {
			return known.to
		}
		known := &merged{bytes.Clone(reply), m.merge(reply)}
		latest.Store(known)
		return known.to
	}
}

// merger puts the lock commands into the reply to one COMMAND.
type merger struct {
	sub   string
	args  []string // behind the subcommand
	proto int
}

func (m *merger) merge(reply []byte) []byte {
	if bytes.HasPrefix(reply, []byte("-ERR unknown command")) {
		reply = m.standIn(reply)
	}
	if m.sub == "getkeys" || m.sub == "getkeysandflags" {
		return m.keys(reply)
	}
	if m.sub == "count" {
		return m.count(reply)
	}
	l, ok := parseListing(reply, m.sub == "docs")
	if !ok {
		return reply
	}
	switch {
	case m.sub == "info" && len(m.args) > 0:
		if len(l.items) != len(m.args) {
			return reply
		}
		for i, name := range m.args {
			if spec := grammar.Find(name); spec != nil {
				l.items[i] = m.item(spec)
			}
		}
	case m.sub == "docs" && len(m.args) > 0:
		l.items = m.docs(l.items)
	default:
		l.items = slices.DeleteFunc(l.items, func(it listed) bool { return grammar.Find(it.name) != nil })
		for i := range grammar.Specs() {
			if spec := &grammar.Specs()[i]; m.wants(spec) {
				l.items = append(l.items, m.item(spec))
			}
		}
	}
	return l.append(make([]byte, 0, len(reply)+8<<10))
}

// standIn answers for an upstream that does not know COMMAND, such as the embedded one: with the table by which the
// proxy itself routes its commands. There are no descriptions in it. The error stays where they are asked for in
// general, so that redis-cli falls back to those it brings along and takes from COMMAND what it does not know.
func (m *merger) standIn(err []byte) []byte {
	l, ok := parseListing(commands.Snapshot(), false)
	if !ok {
		panic("BUG: command snapshot is no listing")
	}
	switch {
	case m.sub == "count":
		return resp.AppendInteger(nil, len(l.items))
	case m.sub == "info" && len(m.args) > 0:
		all := l.items
		l.items = nil
		for _, arg := range m.args {
			name := strings.ToLower(arg)
			it := listed{raw: resp.AppendNull(nil, m.proto)}
			if i := slices.IndexFunc(all, func(it listed) bool { return it.name == name }); i >= 0 {
				it = all[i]
			}
			l.items = append(l.items, it)
		}
	case m.sub == "", m.sub == "info":
	case m.sub == "docs" && len(m.args) > 0:
		return resp.AppendMapHeader(nil, m.proto, 0)
	case m.sub == "getkeys", m.sub == "getkeysandflags":
		return invalidCommand
	default:
		return err
	}
	return l.append(nil)
}

// item is the entry as the subcommand shows it.
func (m *merger) item(spec *grammar.Spec) listed {
	switch m.sub {
	case "docs":
		return listed{spec.Name, appendDocs(nil, spec, m.proto)}
	case "list":
		return listed{spec.Name, resp.AppendBulk(nil, spec.Name)}
	}
	return listed{spec.Name, appendEntry(nil, spec, m.proto)}
}

// wants reports whether the entry passes the filter of COMMAND LIST FILTERBY. Redis has checked the syntax.
func (m *merger) wants(spec *grammar.Spec) bool {
	if m.sub != "list" || len(m.args) != 3 {
		return true
	}
	switch by, arg := strings.ToLower(m.args[1]), strings.ToLower(m.args[2]); by {
	case "aclcat":
		return slices.Contains(spec.Categories, arg)
	case "pattern":
		match, err := path.Match(arg, spec.Name) // the same language for names without a slash
		return match && err == nil
	}
	return false // of no module
}

// docs puts the lock commands among those that Redis described, in the order of the names asked for. Redis leaves out
// what it does not know.
func (m *merger) docs(theirs []listed) []listed {
	var all []listed
	for _, arg := range m.args {
		name := strings.ToLower(arg)
		known := len(theirs) > 0 && theirs[0].name == name
		if spec := grammar.Find(name); spec != nil {
			all = append(all, m.item(spec))
		} else if known {
			all = append(all, theirs[0])
		}
		if known {
			theirs = theirs[1:]
		}
	}
	return append(all, theirs...) // under names of their own: renamed commands
}

// count adds the lock commands to the answer to COMMAND COUNT.
func (m *merger) count(reply []byte) []byte {
	n, err := strconv.Atoi(string(bytes.TrimSuffix(bytes.TrimPrefix(reply, []byte(":")), []byte("\r\n"))))
	if err != nil {
		return reply
	}
	return resp.AppendInteger(nil, n+len(grammar.Specs()))
}

var (
	invalidCommand = []byte("-ERR Invalid command specified\r\n")
	noKeyArguments = resp.AppendError(nil, resp.Err, "The command has no key arguments")
	wrongArguments = resp.AppendError(nil, resp.Err, "Invalid number of arguments specified for command")
)

// keys answers COMMAND GETKEYS and GETKEYSANDFLAGS for a lock command, if Redis let the client ask.
func (m *merger) keys(reply []byte) []byte {
	spec := grammar.Find(m.args[0])
	switch {
	case reply[0] != '*' && !bytes.Equal(reply, invalidCommand):
		return reply
	case spec.Access == nil:
		return noKeyArguments
	case !spec.Accepts(len(m.args)):
		return wrongArguments
	}
	b := resp.AppendHeader(nil, '*', 1)
	if m.sub == "getkeys" {
		return resp.AppendBulk(b, m.args[1])
	}
	b = resp.AppendBulk(resp.AppendHeader(b, '*', 2), m.args[1])
	return appendWords(b, m.proto, "", spec.Access)
}

// listing is an aggregate that Redis sent, cut into the parts that belong to one command each.
type listing struct {
	kind  byte
	width int // what the header counts for each item
	items []listed
}

type listed struct {
	name string // in lower case; empty: nothing is known
	raw  []byte
}

// parseListing cuts a reply. In pairs, an item is a key and its value.
func parseListing(reply []byte, pairs bool) (l listing, ok bool) {
	elems, ok := resp.Elements(reply)
	if !ok {
		return l, false
	}
	size := 1
	l.kind, l.width = reply[0], 1
	switch {
	case pairs && l.kind == '*':
		size, l.width = 2, 2
	case pairs && l.kind == '%':
		size = 2
	case pairs || l.kind == '%':
		return l, false
	}
	if len(elems)%size != 0 {
		return l, false
	}
	for item := range slices.Chunk(elems, size) {
		l.items = append(l.items, listed{strings.ToLower(firstText(item[0])), slices.Concat(item...)})
	}
	return l, true
}

// append appends the listing as a reply.
func (l listing) append(dst []byte) []byte {
	dst = resp.AppendHeader(dst, l.kind, l.width*len(l.items))
	for _, it := range l.items {
		dst = append(dst, it.raw...)
	}
	return dst
}

// firstText is the first string in a frame: the name in a command's entry, or of a key and its value.
func firstText(frame []byte) string {
	if frame[0] == '*' {
		if i := bytes.IndexByte(frame, '\n') + 1; i < len(frame) {
			frame = frame[i:]
		}
	}
	if frame[0] != '$' && frame[0] != '+' {
		return ""
	}
	v, _, err := resp.Decode(frame)
	if err != nil {
		return ""
	}
	return string(v.Str)
}
