package clients

import (
	"strconv"
	"strings"
)

// Info describes one client of the proxy, as far as the proxy knows.
type Info struct {
	ID          uint64
	Addr, LAddr string // host:port, or path:0
	Unix        bool   // by a unix socket
	FD          int
	Name        string
	Age, Idle   int64 // seconds
	DB          int
	User        string
	Stranger    bool   // it has no credentials: User is what Redis calls it
	Resp        int    // version of the protocol
	Cmd         string // the last command; empty: none, or one that Redis does not have
	LibName     string
	LibVer      string

	// State. In CLIENT INFO, Redis's line about the client's own connection has precedence.
	Subs, Patterns, Shards int64
	Multi                  int // commands queued in a transaction; negative: there is none
	Replicates             bool
	Monitors               bool
	Waits                  bool // for a lock, or for the reply to a command that may wait at Redis
	Closes                 bool // when it has its replies

	Conn  Conn        // that the client has for itself
	Redir Redirection // of CLIENT TRACKING

	// Buffers, in bytes.
	Query, QueryFree, Args int64
	Out                    int64 // replies gathered for the next write
	OutFree                int64
	Chunks                 int64 // full pieces before them
	Unread                 int64 // in all, also what is being written
	Writing                bool
	Total                  int64 // all memory of the client
}

// fixedMem is about the memory of a client without its buffers.
const fixedMem = 1 << 10

// flags are Redis's letters for the client. own is Redis's line about the connection that it has for itself; nil: none.
func (c *Info) flags(own Line) string {
	letters := string(own.Field("flags"))
	if own == nil {
		if letters = c.guessedFlags(); letters == "" && !c.Waits && !c.Closes && !c.Unix {
			return "N"
		}
	}
	letters = strings.Map(func(r rune) rune {
		if r == 'U' || r == 'N' { // of the proxy's connection
			return -1
		}
		return r
	}, letters)
	add := func(set bool, letter string) {
		if set && !strings.Contains(letters, letter) {
			letters += letter
		}
	}
	add(c.Waits, "b")
	add(c.Closes, "c")
	add(c.Unix, "U")
	if letters == "" {
		return "N"
	}
	const order = "OSMPxbtRBdcuAUreT"
	sorted := make([]byte, 0, len(letters))
	for i := range len(order) {
		if strings.IndexByte(letters, order[i]) >= 0 {
			sorted = append(sorted, order[i])
		}
	}
	for i := range len(letters) { // those of a version that is not known here
		if strings.IndexByte(order, letters[i]) < 0 {
			sorted = append(sorted, letters[i])
		}
	}
	return string(sorted)
}

func (c *Info) guessedFlags() string {
	var letters string
	switch {
	case c.Monitors:
		letters = "O"
	case c.Replicates:
		letters = "S"
	}
	if c.Subs+c.Patterns+c.Shards > 0 {
		letters += "P"
	}
	if c.Multi >= 0 {
		letters += "x"
	}
	return letters
}

// Type is the type that Redis would assign to the client.
func (c *Info) Type() Type {
	switch {
	case c.Replicates:
		return Replica
	case c.Subs+c.Patterns+c.Shards > 0:
		return PubSub
	}
	return Normal
}

// Append appends the client's line in a shape, without its end. own is Redis's line about the connection that it has
// for itself; nil: none.
func (c *Info) Append(dst []byte, s *Shape, own Line) []byte {
	for i, f := range s.fields {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = append(append(dst, f.name...), '=')
		dst = c.appendValue(dst, f, own)
	}
	return dst
}

// appendValue appends the value of one field.
func (c *Info) appendValue(dst []byte, f shapeField, own Line) []byte {
	number := func(n int64) []byte { return strconv.AppendInt(dst, n, 10) }
	orOwn := func(n int64) []byte {
		if own != nil {
			n = own.number(f.name)
		}
		return number(n)
	}
	switch f.name {
	case "id":
		return strconv.AppendUint(dst, c.ID, 10)
	case "addr":
		return append(dst, c.Addr...)
	case "laddr":
		return append(dst, c.LAddr...)
	case "fd":
		return number(int64(c.FD))
	case "name":
		return append(dst, c.Name...)
	case "age":
		return number(c.Age)
	case "idle":
		return number(c.Idle)
	case "flags":
		return append(dst, c.flags(own)...)
	case "db":
		return number(int64(c.DB))
	case "sub":
		return orOwn(c.Subs)
	case "psub":
		return orOwn(c.Patterns)
	case "ssub":
		return orOwn(c.Shards)
	case "multi":
		return orOwn(int64(c.Multi))
	case "qbuf":
		return number(c.Query)
	case "qbuf-free":
		return number(c.QueryFree)
	case "argv-mem":
		return number(c.Args)
	case "rbs":
		return number(c.Out + c.OutFree)
	case "rbp", "obl":
		return number(c.Out)
	case "oll":
		return number(c.Chunks)
	case "omem":
		return number(c.Unread - c.Out)
	case "tot-mem":
		return number(fixedMem + c.Total + c.Args)
	case "events":
		if c.Writing {
			return append(dst, "rw"...)
		}
		return append(dst, 'r')
	case "cmd":
		if c.Cmd == "" {
			return append(dst, "NULL"...)
		}
		return append(dst, c.Cmd...)
	case "user":
		return append(dst, c.User...)
	case "redir":
		if own == nil {
			return number(-1)
		}
		redir := own.Field("redir")
		if c.Redir.Conn != 0 && string(redir) == strconv.FormatUint(c.Redir.Conn, 10) {
			return strconv.AppendUint(dst, c.Redir.Client, 10)
		}
		return append(dst, redir...)
	case "resp":
		return number(int64(c.Resp))
	case "lib-name":
		return append(dst, c.LibName...)
	case "lib-ver":
		return append(dst, c.LibVer...)
	}
	if own != nil {
		return append(dst, own.Field(f.name)...)
	}
	return append(dst, f.zero...)
}
