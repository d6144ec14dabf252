package session

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// This file reads AUTH, HELLO and SELECT. It says which identity each leads to if Redis accepts it, and whether a
// shared connection may carry it. It does no I/O.

// identityChange is the effect of AUTH, HELLO or SELECT if Redis accepts it.
type identityChange struct {
	Name   *string // client name that it sets, if any
	Auth   bool    // it carries credentials
	Select bool    // it is SELECT
	Hello  bool    // it is HELLO
	auths  int     // the number of AUTH options of a HELLO

	db, proto      int
	user, password string
	odd            bool // Redis may see more in it than is read here
}

// readChange reads a command whose name, in lower case, is name. Redis rejects malformed ones, so nothing is checked
// here. Another command changes nothing.
func readChange(name string, args [][]byte) identityChange {
	switch name {
	case "select":
		return readSelect(args)
	case "auth":
		c := identityChange{Auth: true, odd: len(args) != 2 && len(args) != 3}
		c.user, c.password = credentials(args[1:])
		c.odd = c.odd || c.user == ""
		return c
	case "hello":
		return readHello(args)
	}
	return identityChange{}
}

func readSelect(args [][]byte) identityChange {
	word := string(args[len(args)-1])
	db, err := strconv.Atoi(word)
	return identityChange{Select: true, db: db, odd: len(args) != 2 || err != nil || db < 0 || strconv.Itoa(db) != word}
}

// readHello reads HELLO [protover [AUTH username password] [SETNAME clientname]].
func readHello(args [][]byte) identityChange {
	c := identityChange{Hello: true}
	if len(args) > 1 {
		c.proto, _ = strconv.Atoi(string(args[1]))
		word := string(args[1])
		c.odd = word != "2" && word != "3"
	}
	for i := 2; i < len(args); i++ {
		switch option := strings.ToLower(string(args[i])); {
		case option == "auth" && i+2 < len(args):
			// Redis acts on options one after another: one that comes after SETNAME, or twice, may fail when another
			// has been acted on.
			c.odd = c.odd || c.Auth || c.Name != nil
			c.Auth = true
			c.auths++
			c.user, c.password = credentials(args[i+1 : i+3])
			c.odd = c.odd || c.user == ""
			i += 2
		case option == "setname" && i+1 < len(args):
			name := string(args[i+1])
			c.odd = c.odd || c.Name != nil || !validName(args[i+1])
			c.Name = &name
			i++
		default:
			c.odd = true
		}
	}
	return c
}

// credentials of AUTH's arguments: a password, or a user and a password.
func credentials(args [][]byte) (user, password string) {
	switch len(args) {
	case 0:
		return "", ""
	case 1:
		return "default", string(args[0])
	default:
		return string(args[0]), string(args[1])
	}
}

// apply is the identity that the change leads to from another.
func (c *identityChange) apply(id upstream.Identity) upstream.Identity {
	if c.Auth {
		id.User, id.Password = c.user, c.password
	}
	if c.Select {
		id.DB = c.db
	}
	if c.proto != 0 {
		id.Proto = c.proto
	}
	return id
}

// shared returns the command to send on a shared connection that has the identity to which the change leads. There it
// changes nothing, whether Redis accepts it or not. nil: there may be a change.
func (c *identityChange) shared(raw []byte, args [][]byte) []byte {
	switch {
	case c.odd:
		return nil
	case c.Name != nil: // all clients of the connection would have the name
		i := slices.IndexFunc(args[2:], func(a []byte) bool { return bytes.EqualFold(a, []byte("setname")) })
		if c.Auth {
			i = 3 // behind AUTH user password, which may be any words
		}
		return resp.AppendCommand(nil, args[:2+i]...)
	}
	return raw
}

// refusals are Redis's errors for a command that it has not begun.
var refusals = [][]byte{
	[]byte("-ERR unknown command"), []byte("-ERR unknown subcommand"), []byte("-ERR wrong number of arguments"),
	[]byte("-NOAUTH "), []byte("-NOPERM "),
}

// untouched reports whether Redis has refused a command without having looked at more than its name and its number of
// arguments.
func untouched(reply []byte) bool {
	return slices.ContainsFunc(refusals, func(r []byte) bool { return bytes.HasPrefix(reply, r) })
}

// unclear reports whether the proxy cannot tell after the reply who is logged in. Redis acts on HELLO's options one
// after another, so a bad one may follow an AUTH that went well. Redis may also have a user with the empty name, which
// means the default user in an identity.
func (c *identityChange) unclear(reply []byte) bool {
	if reply[0] != '-' {
		return c.Auth && c.user == ""
	}
	return c.Hello && c.Auth && c.looked(reply) && !(c.auths == 1 && bytes.HasPrefix(reply, []byte("-WRONGPASS ")))
}

// mayHaveNamed reports whether a command that was refused may have left a name. HELLO is refused for the want of
// credentials only after all of its options.
func (c *identityChange) mayHaveNamed(reply []byte) bool {
	return c.Name != nil && reply[0] == '-' && (c.looked(reply) || bytes.HasPrefix(reply, []byte("-NOAUTH ")))
}

// looked reports whether Redis has looked at HELLO's options before it refused.
func (c *identityChange) looked(reply []byte) bool {
	return !untouched(reply) && !bytes.HasPrefix(reply, []byte("-NOPROTO "))
}

// denied reports whether Redis has refused the credentials of user, which the command carries. Other refusals say
// nothing about them.
func (c *identityChange) denied(reply []byte) (user string, denied bool) {
	if !c.Auth || !c.looked(reply) {
		return "", false
	}
	for _, words := range denials {
		denied = denied || bytes.HasPrefix(reply, []byte(words))
	}
	return c.user, denied
}

// denials are Redis's errors for refused credentials: a wrong pair, in the words of Redis 6 and of older ones, and a
// password for a user without one.
var denials = []string{"-WRONGPASS ", "-ERR invalid password", "-ERR AUTH ", "-ERR Client sent AUTH"}

// validName reports whether Redis accepts b as a client name: printable ASCII without spaces.
func validName(b []byte) bool {
	for _, c := range b {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

// withoutAuth takes all credentials out of the arguments of a HELLO, by Redis's own grammar: an argument of SETNAME is
// no option. The arguments behind an option that Redis does not accept are left out too, so that no unread argument
// travels; Redis refuses the command at that option. It reuses args.
func withoutAuth(args [][]byte) [][]byte {
	out := args[:min(2, len(args))]
	for i := 2; i < len(args); i++ {
		switch option := bytes.ToLower(args[i]); {
		case slices.Equal(option, []byte("auth")) && i+2 < len(args):
			i += 2
		case slices.Equal(option, []byte("setname")) && i+1 < len(args):
			out = append(out, args[i], args[i+1])
			i++
		default:
			return append(out, args[i])
		}
	}
	return out
}
