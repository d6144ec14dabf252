package scatter

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// A client library that sees a cluster goes past the proxy to its servers. So the texts by which a server says that it
// is one of a cluster are edited to those of a server that stands alone.

// masks are the lines of INFO that are edited.
var masks = [][2][]byte{
	{[]byte("redis_mode:cluster\r\n"), []byte("redis_mode:standalone\r\n")},
	{[]byte("server_mode:cluster\r\n"), []byte("server_mode:standalone\r\n")},
	{[]byte("cluster_enabled:1\r\n"), []byte("cluster_enabled:0\r\n")},
}

// Info edits the reply to an INFO.
func Info(reply []byte) []byte {
	if reply[0] != '$' && reply[0] != '=' {
		return reply
	}
	for _, m := range masks {
		reply = bytes.Replace(reply, m[0], m[1], 1)
	}
	body := reply[bytes.IndexByte(reply, '\n')+1:]
	return append(resp.AppendHeader(make([]byte, 0, len(body)+16), reply[0], len(body)-len("\r\n")), body...)
}

var (
	modeCluster    = []byte("$4\r\nmode\r\n$7\r\ncluster\r\n")
	modeStandalone = []byte("$4\r\nmode\r\n$10\r\nstandalone\r\n")
)

// Greeting edits the reply to a HELLO.
func Greeting(reply []byte) []byte { return bytes.Replace(reply, modeCluster, modeStandalone, 1) }
