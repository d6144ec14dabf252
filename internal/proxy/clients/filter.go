package clients

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// noClient is an address that no client has. With it, Redis judges a CLIENT KILL that kills no client.
const noClient = "lockproxy:nobody"

// Filter chooses among clients as CLIENT LIST and KILL do. Its zero value chooses all.
type Filter struct {
	IDs         []uint64 // in the order of the arguments; nil: any
	Type        Type
	Addr, LAddr *string
	User        *string
	MaxAge      int64 // least age in seconds; 0: any
	SkipMe      bool
	Old         bool // the form with nothing but an address: answered OK
}

// option is one option of CLIENT LIST or KILL with its values.
type option struct {
	name   string // in lower case
	raw    []byte
	values [][]byte
}

// options cuts what follows LIST or KILL. An ID may have several values, if Redis has that. whole is false if a part
// does not look like an option with its values. Redis then says what is wrong with it.
func options(args [][]byte) (list []option, rest [][]byte, whole bool) {
	for len(args) > 1 {
		o := option{name: strings.ToLower(string(args[0])), raw: args[0], values: args[1:2]}
		args = args[2:]
		for o.name == "id" && len(args) > 0 && IsNumber(args[0]) {
			o.values = o.values[:len(o.values)+1]
			args = args[1:]
		}
		list = append(list, o)
	}
	return list, args, len(args) == 0
}

// IsNumber reports whether an argument is a number, as ids of clients are.
func IsNumber(b []byte) bool {
	_, err := strconv.ParseInt(string(b), 10, 64)
	return err == nil
}

// Harmless is a CLIENT KILL that kills no client, and that Redis judges like the one with these arguments, which follow
// KILL: by the user's rights, the syntax, and the existence of a named user. Its answer is an error in Redis's words or
// says that no client was killed.
func Harmless(args [][]byte) []byte {
	words := [][]byte{[]byte("CLIENT"), []byte("KILL")}
	switch len(args) {
	case 0:
		return resp.AppendCommand(nil, words...)
	case 1:
		return resp.AppendCommand(nil, append(words, []byte(noClient))...)
	}
	words = append(words, []byte("ADDR"), []byte(noClient))
	list, rest, _ := options(args)
	for _, o := range list {
		words = append(words, o.raw)
		if o.name == "addr" { // the last one counts
			words = append(words, []byte(noClient))
			continue
		}
		words = append(words, o.values...)
	}
	return resp.AppendCommand(nil, append(words, rest...)...)
}

// Killed reads Redis's answer to Harmless. false: it is the answer to the client.
func Killed(reply []byte) bool {
	return len(reply) > 0 && reply[0] == ':' || bytes.HasPrefix(reply, noSuchClient)
}

var noSuchClient = []byte("-ERR No such client\r\n")

// ParseKill reads the arguments behind KILL, which Redis has accepted. false: they have an option that the proxy does
// not know.
func ParseKill(args [][]byte) (f Filter, ok bool) {
	if len(args) == 1 {
		addr := string(args[0])
		return Filter{Addr: &addr, Old: true}, true
	}
	return parse(Filter{SkipMe: true}, args)
}

// ParseList reads the arguments behind LIST, which Redis has accepted. false: they have an option that the proxy does
// not know.
func ParseList(args [][]byte) (f Filter, ok bool) { return parse(f, args) }

// parse reads options into a filter.
func parse(f Filter, args [][]byte) (_ Filter, ok bool) {
	list, _, whole := options(args)
	for _, o := range list {
		value := string(o.values[0])
		switch o.name {
		case "id":
			f.IDs = make([]uint64, 0, len(o.values))
			for _, v := range o.values {
				if id, err := strconv.ParseUint(string(v), 10, 63); err == nil {
					f.IDs = append(f.IDs, id)
				}
			}
		case "type":
			f.Type = TypeNamed(o.values[0])
			whole = whole && f.Type != AnyType
		case "addr":
			f.Addr = &value
		case "laddr":
			f.LAddr = &value
		case "user":
			f.User = &value
		case "skipme":
			f.SkipMe = strings.EqualFold(value, "yes")
		case "maxage":
			n, err := strconv.ParseInt(value, 10, 64)
			f.MaxAge = n
			whole = whole && err == nil
		default:
			return f, false
		}
	}
	return f, whole
}

// Match reports whether the filter chooses a client with one of its IDs. SkipMe is left to the caller, who knows whose
// filter it is.
func (f *Filter) Match(c *Info) bool {
	return (f.Addr == nil || *f.Addr == c.Addr) &&
		(f.LAddr == nil || *f.LAddr == c.LAddr) &&
		(f.User == nil || *f.User == c.User) &&
		c.Age >= f.MaxAge &&
		(f.Type == AnyType || f.Type == c.Type())
}

// Reply answers a CLIENT KILL that has killed n clients.
func (f *Filter) Reply(killed int) []byte {
	switch {
	case !f.Old:
		return []byte(":" + strconv.Itoa(killed) + "\r\n")
	case killed == 0:
		return noSuchClient
	}
	return []byte("+OK\r\n")
}
