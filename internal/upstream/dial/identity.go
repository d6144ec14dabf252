package dial

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Identity is the user, database and protocol version of a connection to Redis. Connections are shared only within one
// identity, so nothing of one client can travel with the rights, the database or the protocol of another. It is
// comparable.
type Identity struct {
	// User and Password are what Redis was given by AUTH or HELLO … AUTH; both empty: not authenticated.
	// They never appear in logs, metrics or errors.
	User, Password string

	// DB is the selected database.
	DB int

	// Proto is the protocol version, 2 or 3.
	Proto int
}

// Authenticated reports whether the identity carries credentials.
func (id Identity) Authenticated() bool { return id.User != "" || id.Password != "" }

// String names the identity without its password.
func (id Identity) String() string {
	user := id.userName()
	if !id.Authenticated() {
		user = "(no login)"
	}
	return fmt.Sprintf("%s db%d resp%d", user, id.DB, id.Proto)
}

// GoString is String: a %#v must not print the password either.
func (id Identity) GoString() string { return id.String() }

// step is one command of a handshake. An optional step may be refused by Redis without ending the handshake, unless it
// is the connection that is refused.
type step struct {
	cmd      []byte
	optional bool
	hello    bool // its reply has the connection's id
}

// handshake lists the commands that give a new connection this identity.
func (id Identity) handshake() []step {
	var steps []step
	switch {
	case id.Proto == 3 && id.Authenticated():
		login := resp.AppendCommand(nil, "HELLO", "3", "AUTH", id.userName(), id.Password)
		steps = append(steps, step{cmd: login, hello: true})
	case id.Proto == 3:
		steps = append(steps, step{cmd: resp.AppendCommand(nil, "HELLO", "3"), hello: true})
	case id.Authenticated() && id.User == "":
		steps = append(steps, step{cmd: resp.AppendCommand(nil, "AUTH", id.Password)})
	case id.Authenticated():
		steps = append(steps, step{cmd: resp.AppendCommand(nil, "AUTH", id.User, id.Password)})
	}
	if id.Proto != 3 {
		// At least one command is needed: a Redis with too many clients says so in answer to the first command.
		steps = append(steps, step{cmd: resp.AppendCommand(nil, "HELLO"), optional: true, hello: true})
	}
	if id.DB != 0 {
		steps = append(steps, step{cmd: resp.AppendCommand(nil, "SELECT", strconv.Itoa(id.DB))})
	}
	return steps
}

// userName is the user of a password without a user name.
func (id Identity) userName() string {
	if id.User == "" {
		return "default"
	}
	return id.User
}

// Shake makes a connection an identity's. It sends all steps at once and reads their replies, until ctx ends. It
// returns the reply to HELLO, which has the connection's id and the role of the server.
func Shake(ctx context.Context, nc net.Conn, id Identity) (hello resp.Value, err error) {
	end := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !end() && err == nil {
			err = ctx.Err() // the deadline may be set now, or soon
		}
	}()
	steps := id.handshake()
	var out []byte
	for _, st := range steps {
		out = append(out, st.cmd...)
	}
	if _, err := nc.Write(out); err != nil {
		return hello, err
	}
	rd := Reader{nc: nc}
	for _, st := range steps {
		v, err := rd.next()
		if err != nil {
			return hello, err
		}
		if v.IsError() && (!st.optional || bytes.HasPrefix(v.Str, []byte("ERR max number of clients"))) {
			return hello, &RefusedError{Reply: withoutArguments(string(v.Str))}
		}
		if st.hello {
			hello = v
		}
	}
	return hello, nil
}

// withoutArguments is an error reply of Redis without the arguments that it quotes of a command that it does not know:
// those of AUTH and HELLO are passwords.
func withoutArguments(reply string) string {
	reply, _, _ = strings.Cut(reply, ", with args beginning with")
	return reply
}
