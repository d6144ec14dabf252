package dial

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// conn is a connection. It reads what a test has put there.
type conn struct {
	net.Conn
	io.Reader
	closed bool
}

func (c *conn) Read(b []byte) (int, error) { return c.Reader.Read(b) }

func (c *conn) Close() error {
	c.closed = true
	return nil
}

func decode(t *testing.T, text string) resp.Value {
	t.Helper()
	v, _, err := resp.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTheAnswerToHello(t *testing.T) {
	for text, old := range map[string]bool{
		"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n":  true,
		"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.2.9\r\n":   true,
		"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$7\r\n7.1.240\r\n": true,
		"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n":   false,
		"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n10.1.0\r\n":  false,
		"*4\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n":  false,
		"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\nmainx\r\n":   false,
		"*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\nx.y.z\r\n":   false,
		"-NOAUTH HELLO must be called with the client already authenticated\r\n":  false,
	} {
		if IsBefore72(decode(t, text)) != old {
			t.Errorf("%q: before 7.2 is not %v", text, old)
		}
	}
	hello := decode(t, "*4\r\n$2\r\nid\r\n:12\r\n$4\r\nrole\r\n$6\r\nmaster\r\n")
	if ConnectionID(hello) != 12 {
		t.Errorf("id %d", ConnectionID(hello))
	}
	if v := decode(t, "-ERR unknown command 'HELLO'\r\n"); ConnectionID(v) != 0 {
		t.Error("an answer without fields")
	}
	var c Connections
	nc := new(conn)
	c.Opened(nc, "server:1", nil)
	c.Greeted(nc, decode(t, "*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.2.9\r\n$2\r\nid\r\n:12\r\n"), false)
	if id, old := c.Greeting(nc); id != 12 || !old || c.Any() != 12 {
		t.Errorf("greeting: %d, %v; any is %d", id, old, c.Any())
	}
	if c.Closed(nc); c.Any() != 0 {
		t.Errorf("after its end: %d", c.Any())
	}
}

const answer = "%2\r\n$2\r\nid\r\n:12\r\n$4\r\nrole\r\n$7\r\nreplica\r\n"

func TestALentConnectionReadsAlong(t *testing.T) {
	for name, reader := range map[string]io.Reader{
		"at once":      strings.NewReader(answer + "+OK\r\n"),
		"byte by byte": iotest.OneByteReader(strings.NewReader(answer + "+OK\r\n")),
	} {
		t.Run(name, func(t *testing.T) {
			var c Connections
			nc := new(conn)
			nc.Reader = reader
			c.Opened(nc, "server:1", nil)
			var roles []Role
			lent := c.Lend(nc, func(role Role) error {
				roles = append(roles, role)
				return nil
			})
			if b, err := io.ReadAll(lent); string(b) != answer+"+OK\r\n" || err != nil {
				t.Errorf("the library has read %q, %v", b, err)
			}
			if !slices.Equal(roles, []Role{Replica}) {
				t.Errorf("roles: %v", roles)
			}
			if err := lent.Close(); err != nil || !nc.closed || len(c.open) != 0 {
				t.Error("the connection is not closed")
			}
		})
	}
}

// A Redis without HELLO does not say its role.
func TestALentConnectionDoesNotCollectForEver(t *testing.T) {
	var c Connections
	nc := new(conn)
	nc.Reader = strings.NewReader(strings.Repeat("+OK\r\n", lentHead))
	c.Opened(nc, "server:1", nil)
	l := c.Lend(nc, nil).(*lent)
	if _, err := io.ReadAll(l); err != nil {
		t.Fatal(err)
	}
	if len(l.head) != 0 {
		t.Errorf("%d bytes are kept", len(l.head))
	}
}
