package clients

import (
	"bytes"
	"slices"
	"strconv"
)

// Redirection is the target of CLIENT TRACKING's invalidations: the client with that id, whose connection at Redis is
// conn. The zero value: none, or a client of Redis itself.
type Redirection struct{ Client, Conn uint64 }

// Translate puts the client's id into a reply or push that ends with that of its connection.
func (r Redirection) Translate(reply []byte) []byte {
	if r.Conn == 0 {
		return reply
	}
	old := strconv.AppendUint([]byte(":"), r.Conn, 10)
	for _, prefix := range redirPrefixes {
		at := bytes.Index(reply, slices.Concat([]byte(prefix), old, []byte("\r\n")))
		if at < 0 || prefix == "" && at > 0 {
			continue
		}
		at += len(prefix) + 1
		return slices.Concat(reply[:at], strconv.AppendUint(nil, r.Client, 10), reply[at+len(old)-1:])
	}
	return reply
}

// redirPrefixes stand before the id in the replies to CLIENT GETREDIR and TRACKINGINFO, and in the push that says that
// the client has gone.
var redirPrefixes = []string{"", "$8\r\nredirect\r\n", "$21\r\ntracking-redir-broken\r\n"}
