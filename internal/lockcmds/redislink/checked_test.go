package redislink

import (
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// bytesOf is a connection from which the bytes of some chunks are read, one after another.
type bytesOf struct {
	net.Conn
	chunks [][]byte
}

func (b *bytesOf) Read(p []byte) (int, error) {
	if len(b.chunks) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.chunks[0])
	if b.chunks[0] = b.chunks[0][n:]; len(b.chunks[0]) == 0 {
		b.chunks = b.chunks[1:]
	}
	return n, nil
}

func (b *bytesOf) Write(p []byte) (int, error) { return len(p), nil }

// commands are the bytes of commands, each of words.
func commands(t *testing.T, lines ...string) []byte {
	t.Helper()
	var out []byte
	for _, line := range lines {
		words := strings.Fields(line)
		out = resp.AppendCommand(out, words...)
	}
	return out
}

const (
	subscribed   = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
	unsubscribed = ">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n"
	message      = ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"
)

// check returns a connection whose handshake is over, and what is logged of it.
func check(under net.Conn) (*checked, *observer.ObservedLogs) {
	core, entries := observer.New(zap.WarnLevel)
	return &checked{Conn: under, client: &Client{opts: Options{Logger: zap.New(core)}}}, entries
}

// Frames that are well-formed and in place arrive as they are. The rest of the bytes does not arrive.
func TestFramesAreChecked(t *testing.T) {
	for _, c := range []struct{ sent, good, bad string }{
		{"GET a", "+OK\r\n", ""},
		{"GET a|GET b|GET c", "$0\r\n\r\n$3\r\na\r\n\r\n_\r\n", ""},
		{"A|B|C|D", ":1\r\n:-1\r\n_\r\n-NO x\r\n", ""},
		{"A|B|C", "*0\r\n_\r\n*2\r\n*1\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n", ""},
		{"HELLO 3", "%2\r\n$1\r\na\r\n*0\r\n$1\r\nb\r\n%1\r\n+c\r\n~1\r\n:1\r\n", ""},
		{"A", message + "+OK\r\n" + message + ">0\r\n>1\r\n:1\r\n", ""},
		{"SUBSCRIBE a|SUBSCRIBE b|PING", message + subscribed + message + subscribed + "+PONG\r\n", ""},
		{"SUBSCRIBE a|PING", "-NOPERM x\r\n+PONG\r\n", ""},
		{"SSUBSCRIBE a|SSUBSCRIBE b", "-MOVED x\r\n>3\r\n$10\r\nssubscribe\r\n$1\r\nb\r\n:1\r\n", ""},
		{"UNSUBSCRIBE a b|PING|GET c", unsubscribed + unsubscribed + "+PONG\r\n:1\r\n", ""},
		{"UNSUBSCRIBE|PING|GET c", ">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n+PONG\r\n:1\r\n", ""},
		{"UNSUBSCRIBE a|PING|GET c", unsubscribed + "-NOPERM no right to 'ping'\r\n:1\r\n", ""},
		{"UNSUBSCRIBE a|PING|GET c", "-NOPERM x\r\n+PONG\r\n:1\r\n", ""},
		{"SUNSUBSCRIBE a|PING|GET c", unsubscribed + "-MOVED 1 x:1\r\n+PONG\r\n:1\r\n", ""}, // the slot has moved
		{"A", ">3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n:1\r\n", ""},                   // the slot has moved

		{"A", "", "*-2\r\n"},
		{"A", "", "*-0\r\n"},
		{"A", "", "%-1\r\n"},
		{"A", "", ">-1\r\n"},
		{"A", "", "$-2\r\n"},
		{"A", "", "=-1\r\n"},
		{"A", "", "$\r\n"},
		{"A", "", "*\r\n"},
		{"A", "", "*1 \r\n:1\r\n"},
		{"A", "", "$1\r\nab\r\n"},
		{"A", "", "#t\r\n"},
		{"A", "", ",1.5\r\n"},
		{"A", "", "(99\r\n"},
		{"A", "", "+a\nb\r\n"},
		{"A", "", "\r\n"},
		{"A", "", "\n"},
		{"A", "", "#\r\n"},
		{"A", "", ":\r\n"},
		{"A", "", ":1x\r\n"},
		{"A", "", ":9223372036854775808\r\n"},
		{"A", "", "*?\r\n.\r\n"},
		{"A", "", "$?\r\n;1\r\na\r\n;0\r\n"},
		{"A", "", "HTTP/1.1 400 Bad Request\r\n"},
		{"A", "", "*1\r\n>1\r\n:1\r\n"},
		{"A", "", strings.Repeat("*1\r\n", 200) + ":1\r\n"},
		{"A", "", "+" + strings.Repeat("x", maxFrame+1)},

		{"", "", "+OK\r\n"}, // nothing was asked
		{"A", "+OK\r\n", "+OK\r\n"},
		{"A", "", subscribed},
		{"SUBSCRIBE a", "", "+OK\r\n"},
		{"SUBSCRIBE a", "", "+QUEUED\r\n"},
		{"SUBSCRIBE a", "", ">2\r\n$9\r\nsubscribe\r\n$1\r\na\r\n"},
		{"SUBSCRIBE a", ">3\r\n$10\r\nxsubscribe\r\n$1\r\na\r\n:1\r\n", "+QUEUED\r\n"},
		{"SUBSCRIBE a", subscribed, "-ERR x\r\n"},
		{"SUBSCRIBE a", subscribed, subscribed},
		{"SUBSCRIBE a", "", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"},
		{"UNSUBSCRIBE a|PING", "+PONG\r\n", "+PONG\r\n"},
		{"UNSUBSCRIBE a|PING", "", "-BUSY x\r\n"},
		{"UNSUBSCRIBE a|PING", "", ":1\r\n"},
		{"UNSUBSCRIBE a|PING", "-NOPERM x\r\n", "-NOPERM x\r\n"},
		{"UNSUBSCRIBE a|PING", "-NOPERM x\r\n", ":1\r\n"},
	} {
		var sent []string
		if c.sent != "" {
			sent = strings.Split(c.sent, "|")
		}
		wire := commands(t, sent...)
		for _, size := range []int{1, 3, 1 << 20} { // bytes of a chunk
			under := &bytesOf{}
			nc, entries := check(under)
			for rest := wire; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := nc.Write(rest[:min(size, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}
			if size < 3 && len(c.bad) > 1000 {
				continue
			}
			for rest := []byte(c.good + c.bad); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				under.chunks = append(under.chunks, rest[:min(size, len(rest))])
			}
			got, err := io.ReadAll(nc)
			if string(got) != c.good || (err != nil) != (c.bad != "") || entries.Len() != min(1, len(c.bad)) {
				t.Errorf("%q, answered by %.60q: passed on %q, %v, %d entries", c.sent, c.good+c.bad, got, err, entries.Len())
			}
		}
	}
}

// What is only announced takes no memory, and no reply is passed on in part, or in another form than the library reads.
func TestAReplyTakesTheMemoryOfItsBytes(t *testing.T) {
	for _, head := range []string{"$536870912\r\nabc", "*9223372036854775807\r\n", "%1048577\r\n:1\r\n"} {
		nc, _ := check(&bytesOf{chunks: [][]byte{[]byte(head)}})
		_, _ = nc.Write(commands(t, "A"))
		if n, err := nc.Read(make([]byte, 100)); n != 0 || err == nil || cap(nc.frame)+cap(nc.out) > largestSpare {
			t.Errorf("%q: %d bytes, %v, buffers of %d and %d bytes", head, n, err, cap(nc.frame), cap(nc.out))
		}
	}
	long := resp.AppendBulk(nil, strings.Repeat("x", maxFrame-100))
	nc, _ := check(&bytesOf{chunks: [][]byte{append(bytes.Clone(long), "$1\r\na\r\n"...)}})
	_, _ = nc.Write(commands(t, "A", "B"))
	got, err := io.ReadAll(nc)
	if err != nil || string(got) != string(long)+"$1\r\na\r\n" || cap(nc.frame) > largestSpare {
		t.Errorf("%d bytes of %d, %v, a buffer of %d bytes", len(got), len(long), err, cap(nc.frame))
	}
	odd := "$-1\r\n*-1\r\n_x\r\n*01\r\n:7\r\n|1\r\n+a\r\n+b\r\n+OK\r\n+a\rb\r\n-ERR x\r\n"
	nc, _ = check(&bytesOf{chunks: [][]byte{[]byte(odd)}})
	_, _ = nc.Write(commands(t, "A", "B", "C", "D", "E", "F", "G"))
	if got, err := io.ReadAll(nc); string(got) != "_\r\n_\r\n_\r\n*1\r\n:7\r\n+OK\r\n+a\rb\r\n-ERR ERR x\r\n" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A server that sends anything at any moment ends a connection, not the process. Locks work again when it is a Redis
// again.
func TestAHostileServerEndsItsConnectionOnly(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	relay := redistest.StartRelay(t, redis.Addr())
	c, h := start(t, Options{Addr: relay.Addr()})
	whole := text("return {1, 'a', {2}}")
	works := func(after string) {
		t.Helper()
		redistest.Eventually(t, 2*patience, "a script to run behind "+after, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			v, err := c.Eval(ctx, whole, nil, nil)
			return err == nil && len(v.Elems) == 3
		})
		c.Subscribe("x" + after)
		for limit := time.After(patience); ; {
			select {
			case told := <-h:
				if told == "confirmed x"+after {
					c.Unsubscribe("x" + after)
					return
				}
			case <-limit:
				t.Fatalf("no subscription behind %q", after)
			}
		}
	}
	works("nothing")
	for _, bad := range []string{
		"*9223372036854775807\r\n", "$9223372036854775806\r\n", "%4611686018427387904\r\n", "*-2\r\n", "+OK\r\n", subscribed, unsubscribed, "-LOADING x\r\n",
	} {
		for i, damage := range []func(chunk []byte) []byte{
			func([]byte) []byte { return []byte(bad) }, // instead of Redis's bytes
			func(chunk []byte) []byte { return append([]byte(bad), chunk...) },
			func(chunk []byte) []byte { return append(bytes.Clone(chunk), bad...) },
		} {
			var damaged atomic.Int32
			relay.Damage(func(chunk []byte) []byte {
				if damaged.Add(1) > 3 {
					return chunk
				}
				return damage(chunk)
			})
			c.Subscribe("y")
			for range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				_, _ = c.Eval(ctx, whole, nil, nil)
				cancel()
			}
			c.Unsubscribe("y")
			relay.Damage(nil)
			works(bad[:min(len(bad), 20)] + strconv.Itoa(i))
		}
	}
}
