package dial

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// conn is a connection from a local address. It reads what a test has put there.
type conn struct {
	net.Conn
	local net.Addr
	io.Reader
	closed bool
}

func (c *conn) LocalAddr() net.Addr        { return c.local }
func (c *conn) Read(b []byte) (int, error) { return c.Reader.Read(b) }

func (c *conn) Close() error {
	c.closed = true
	return nil
}

func from(port int) *conn { return &conn{local: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}} }

func (c *conn) addr() string { return c.local.String() }

const stranger = "127.0.0.1:9"

func TestAConnectionIsKnownByItsAddressUntilItsIDIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Connections
		if c.Own(1, "") || c.Own(0, stranger) || c.Any() != 0 || c.Count() != 0 {
			t.Error("a proxy without connections has one")
		}
		nc := from(1)
		c.Opened(nc, "server:1")
		if !c.Own(7, nc.addr()) || c.Own(7, stranger) || c.Count() != 0 {
			t.Error("before the handshake")
		}
		c.Identified(nc, 0)
		c.Identified(nc, 7)
		if !c.Own(7, stranger) || c.Own(8, nc.addr()) || c.Count() != 1 || c.Any() != 7 {
			t.Error("after the handshake")
		}
		if c.Identified(nc, 8); c.Own(8, stranger) {
			t.Error("the id of a connection does not change")
		}
		c.Closed(nc)
		c.Closed(nc)
		if c.Count() != 0 || c.Any() != 0 {
			t.Error("a closed connection is counted")
		}
		time.Sleep(ClosedFor - 1)
		if !c.Own(7, stranger) {
			t.Error("Redis may not have noticed the end yet")
		}
		time.Sleep(time.Nanosecond)
		if c.Own(7, stranger) {
			t.Error("a closed connection is remembered for too long")
		}
		if len(c.ids) != 1 {
			t.Fatal("it is Trim that frees the memory")
		}
		closed := time.Now().Add(-ClosedFor)
		if c.Trim(closed); len(c.ids) != 1 {
			t.Error("forgotten too early")
		}
		if c.Trim(closed.Add(1)); len(c.ids) != 0 {
			t.Error("not forgotten")
		}
	})
}

// Its address may soon be another client's.
func TestAnAddressIsRememberedForAShorterTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Connections
		first, second := from(1), from(1)
		c.Opened(first, "server:1")
		c.Opened(second, "server:2")
		if c.Closed(first); c.Count() != 0 {
			t.Error("a connection is counted that was never past its handshake")
		}
		time.Sleep(2 * leftFor)
		if !c.Own(0, second.addr()) {
			t.Error("an open connection has the address")
		}
		c.Closed(second)
		time.Sleep(leftFor - 1)
		if !c.Own(0, second.addr()) {
			t.Error("Redis may not have noticed the end yet")
		}
		time.Sleep(time.Nanosecond)
		if c.Own(0, second.addr()) {
			t.Error("the address is remembered for too long")
		}
		if c.Trim(time.Now()); len(c.left) != 0 {
			t.Error("not forgotten")
		}
	})
}

// All unix sockets have the same address.
func TestAUnixSocketIsNotKnownByItsAddress(t *testing.T) {
	var c Connections
	nc := &conn{local: &net.UnixAddr{Name: "@", Net: "unix"}}
	c.Opened(nc, "/run/redis")
	if c.Own(1, "@") {
		t.Error("any client of the socket is the proxy's own")
	}
	c.Identified(nc, 7)
	if !c.Own(7, "@") {
		t.Error("not known by its id")
	}
}

func TestSettleWaitsForThePresentAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Connections
		settle := func() time.Duration {
			begin := time.Now()
			c.Settle()
			return time.Since(begin)
		}
		if d := settle(); d != 0 {
			t.Errorf("nothing is opened: %v", d)
		}
		over, late := c.Attempt(), make(chan func(), 1)
		time.AfterFunc(settleLimit/4, func() { late <- c.Attempt() }) // it does not count for a call of Settle before it
		time.AfterFunc(settleLimit/2, over)
		if d := settle(); d != settleLimit/2 {
			t.Errorf("settled after %v", d)
		}
		if d := settle(); d != settleLimit {
			t.Errorf("a hanging attempt holds it up for %v", d)
		}
		(<-late)()
		if d := settle(); d != 0 {
			t.Errorf("all attempts are over: %v", d)
		}
		if len(c.opening) != 0 {
			t.Error("an attempt is remembered that is over")
		}
	})
}

func TestConnectionsElsewhere(t *testing.T) {
	var c Connections
	old, present, lib := from(1), from(2), from(3)
	c.Opened(old, "old")
	c.Opened(present, "new")
	c.Opened(lib, "old")
	c.Lend(lib, nil)
	tls := from(1)
	c.Replaced(old, tls)
	if all := c.Elsewhere("new", false); len(all) != 2 || !slices.Contains(all, net.Conn(tls)) || !slices.Contains(all, net.Conn(lib)) {
		t.Errorf("elsewhere: %v", all)
	}
	if all := c.Elsewhere("new", true); len(all) != 1 || all[0] != lib {
		t.Errorf("lent and elsewhere: %v", all)
	}
	if c.At(tls) != "old" || c.At(old) != "" {
		t.Errorf("%q, %q", c.At(tls), c.At(old))
	}
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
	if ConnectionID(hello) != 12 || RoleIn(hello) != PrimaryRole {
		t.Errorf("%d, %q", ConnectionID(hello), RoleIn(hello))
	}
	if v := decode(t, "-ERR unknown command 'HELLO'\r\n"); ConnectionID(v) != 0 || RoleIn(v) != "" {
		t.Error("an answer without fields")
	}
	var c Connections
	nc := from(1)
	c.Opened(nc, "server:1")
	c.Greeted(nc, decode(t, "*6\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.2.9\r\n$2\r\nid\r\n:12\r\n"))
	if id, old := c.Greeting(nc); id != 12 || !old {
		t.Errorf("greeting: %d, %v", id, old)
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
			nc := from(1)
			nc.Reader = reader
			c.Opened(nc, "server:1")
			var roles []string
			lent := c.Lend(nc, func(role string) error {
				roles = append(roles, role)
				return nil
			})
			if b, err := io.ReadAll(lent); string(b) != answer+"+OK\r\n" || err != nil {
				t.Errorf("the library has read %q, %v", b, err)
			}
			if !c.Own(12, "") || !slices.Equal(roles, []string{ReplicaRole}) {
				t.Errorf("known: %v, roles: %q", c.Own(12, ""), roles)
			}
			if err := lent.Close(); err != nil || !nc.closed || c.Count() != 0 {
				t.Error("the connection is not closed")
			}
		})
	}
}

func TestTheLibraryIsRefusedAServerOfAnotherRole(t *testing.T) {
	var c Connections
	nc := from(1)
	nc.Reader = strings.NewReader(answer)
	c.Opened(nc, "server:1")
	wrong := errors.New("wrong role")
	if n, err := c.Lend(nc, func(string) error { return wrong }).Read(make([]byte, 100)); n != 0 || !errors.Is(err, wrong) {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// A Redis without HELLO says neither.
func TestALentConnectionDoesNotCollectForEver(t *testing.T) {
	var c Connections
	nc := from(1)
	nc.Reader = strings.NewReader(strings.Repeat("+OK\r\n", lentHead))
	c.Opened(nc, "server:1")
	l := c.Lend(nc, nil).(*lent)
	if _, err := io.ReadAll(l); err != nil {
		t.Fatal(err)
	}
	if len(l.head) != 0 || c.Count() != 1 || c.Any() != 0 {
		t.Errorf("%d bytes are kept, %d connections are counted, with the id %d", len(l.head), c.Count(), c.Any())
	}
}
