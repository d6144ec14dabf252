package command

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/commands"
)

// TitleOf is what CLIENT LIST says of a whole command in array form, as the client's last one; empty: Redis does not
// have it.
func (c *Row) TitleOf(raw []byte) string {
	if c.subs == nil {
		return c.Title
	}
	sub, ok := secondArgument(raw)
	switch {
	case !ok:
		return c.Title
	case len(sub) > maxName:
		return ""
	}
	var lower [maxName]byte
	return c.subs[string(lowered(sub, &lower))]
}

// secondArgument is the one behind the name of a whole command in array form.
func secondArgument(raw []byte) (arg []byte, ok bool) {
	rest := raw[bytes.IndexByte(raw, '\n')+1:]
	for range 2 {
		end := bytes.IndexByte(rest, '\n')
		if end < 2 {
			return nil, false
		}
		n, _ := strconv.Atoi(string(rest[1 : end-1])) // it has been checked
		rest = rest[end+1:]
		arg, rest = rest[:n], rest[n+2:]
	}
	return arg, true
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
