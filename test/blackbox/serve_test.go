package blackbox

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// infoOf is a field of INFO lockproxy.
func infoOf(t *testing.T, addr, field string) string {
	t.Helper()
	v := decode(t, ask(t, addr, "INFO lockproxy"))
	for line := range strings.SplitSeq(string(v.Str), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	t.Fatalf("INFO lockproxy has no %s: %s", field, v.Str)
	return ""
}

// field is the text of one field of a map.
func field(v resp.Value, name string) string { return string(v.Field(name).Str) }

// ask sends commands one by one on a connection of their own and returns the last reply.
func ask(t *testing.T, addr string, commands ...string) (reply string) {
	t.Helper()
	c := proxytest.Dial(t, addr)
	defer c.Conn.Close()
	for _, command := range commands {
		reply = c.Ask(command)
	}
	return reply
}

func decode(t *testing.T, reply string) resp.Value {
	t.Helper()
	v, n, err := resp.Decode([]byte(reply))
	if err != nil || n != len(reply) {
		t.Fatalf("reply %.200q: %v", reply, err)
	}
	return v
}
