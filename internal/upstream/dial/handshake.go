package dial

import (
	"bytes"
	"context"
	"net"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

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
