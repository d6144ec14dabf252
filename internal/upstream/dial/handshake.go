package dial

import (
	"bytes"
	"context"
	"net"
	"time"

	"lockproxy/internal/upstream/census"
)

// shake sends all steps at once and reads their replies. The deadline of ctx bounds it. It returns the id that Redis gave the
// connection; 0: Redis did not say.
func shake(ctx context.Context, nc net.Conn, steps []step) (id uint64, err error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := nc.SetDeadline(deadline); err != nil {
			return 0, err
		}
	}
	var out []byte
	for _, st := range steps {
		out = append(out, st.cmd...)
	}
	if _, err := nc.Write(out); err != nil {
		return 0, err
	}
	rd := Reader{nc: nc}
	for _, st := range steps {
		v, err := rd.next()
		if err != nil {
			return 0, err
		}
		if v.IsError() && (!st.optional || bytes.HasPrefix(v.Str, []byte("ERR max number of clients"))) {
			return 0, &RefusedError{Reply: string(v.Str)}
		}
		if st.hello {
			id = census.ConnectionID(v)
		}
	}
	return id, nc.SetDeadline(time.Time{})
}
