package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Error is an error reply, without the dash.
type Error string

func (e Error) Error() string { return string(e) }

// Code is the first word of the reply.
func (e Error) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// isCode reports whether err is an error reply with that code.
func isCode(err error, code string) bool {
	var reply Error
	return errors.As(err, &reply) && reply.Code() == code
}

// silence is the error about a proxy that does not answer.
type silence string

func (s silence) Error() string { return string(s) }

// unanswered is the silence about a command, which is named by one word or two.
func unanswered(addr, command string, began time.Time) error {
	return silence(fmt.Sprintf("the proxy at %s has not answered %s within %v",
		addr, command, time.Since(began).Round(10*time.Millisecond)))
}

// errClosed says that the proxy has closed the connection.
var errClosed = errors.New("the proxy has closed the connection")

// Conn is a connection to a proxy. One goroutine at a time may use it.
//
// Unlike a client library it never connects again by itself and repeats nothing: the lock of a connection ends with the
// connection.
//
//	Dial ──► Conn ── Do ──► one reply
//	           └── Pushes ──► lock-lost
//
// Goroutines: a Conn has one that reads. It ends with the connection, and Close waits for it.
type Conn struct {
	addr    string
	nc      net.Conn
	replies chan resp.Value
	pushes  chan resp.Value
	done    chan struct{} // closed when the reader has ended
	reader  sync.WaitGroup
}

// mostPushes are kept unread; more are dropped.
const mostPushes = 16

// dialLimit bounds the connection with its handshakes.
const dialLimit = 5 * time.Second

// Dial connects and logs in. The connection speaks RESP3, so that losses are pushed. name is shown in lists of clients.
func Dial(ctx context.Context, t Target, name string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	nc, err := open(ctx, t)
	if err != nil {
		return nil, err
	}
	c := talk(nc, t.Addr)
	if err := c.greet(ctx, t, name); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// talk reads the replies of a connection.
func talk(nc net.Conn, addr string) *Conn {
	c := &Conn{
		addr: addr, nc: nc,
		replies: make(chan resp.Value), pushes: make(chan resp.Value, mostPushes), done: make(chan struct{}),
	}
	c.reader.Go(c.read)
	return c
}

// open connects.
func open(ctx context.Context, t Target) (net.Conn, error) {
	began := time.Now()
	nc, err := (&net.Dialer{KeepAlive: 5 * time.Second}).DialContext(ctx, t.Network, t.Addr)
	if unknown, ok := errors.AsType[*net.DNSError](err); ok {
		// The name is not quoted: it may be a password in a wrong place.
		return nil, fmt.Errorf("the host of the proxy's address is not found: %s", unknown.Err)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, unanswered(t.Addr, "the connection", began)
	case err != nil:
		if failed, ok := errors.AsType[*net.OpError](err); ok {
			err = failed.Err
		}
		return nil, fmt.Errorf("the proxy at %s cannot be reached: %w (--url or LOCKPROXY_URL has its address)", t.Addr, err)
	}
	if t.Header { // it names no client, and is sent at once
		_, _ = io.WriteString(nc, "PROXY UNKNOWN\r\n") // the request behind it fails likewise
	}
	if t.TLS == nil {
		return nc, nil
	}
	secure := tls.Client(nc, t.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			return nil, unanswered(t.Addr, "the TLS handshake", began)
		}
		if _, noRecord := errors.AsType[tls.RecordHeaderError](err); noRecord || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w (the proxy may speak no TLS at this address)", err)
		}
		return nil, fmt.Errorf("TLS with %s: %w", t.Addr, err)
	}
	return secure, nil
}

// Alive asks a proxy whether it lives, over a connection of its own. A length that no argument has is answered by the
// proxy itself, whatever the state of Redis; any other command only when Redis has been asked.
func Alive(ctx context.Context, t Target) error {
	_, err := ask(ctx, t, "a question whether it lives", []byte("*1\r\n$-2\r\n"))
	if isCode(err, "ERR") {
		return nil
	}
	return err
}

// Ready asks a proxy whether it serves clients from Redis. A demand for a login is as good an answer, because it comes
// from Redis.
func Ready(ctx context.Context, t Target) error {
	v, err := ask(ctx, t, "PING", resp.AppendCommand(nil, "PING"))
	switch {
	case isCode(err, "NOAUTH"), err == nil && string(v.Str) == "PONG":
		return nil
	case err == nil:
		err = fmt.Errorf("%q", v.Str)
	}
	return fmt.Errorf("PING: %w", err)
}

// Outage is why Redis is away, as the proxy tells without a login; empty: it does not say so.
func Outage(ctx context.Context, t Target) string {
	v, _ := ask(ctx, t, "INFO", resp.AppendCommand(nil, "INFO", "lockproxy"))
	_, reason, _ := strings.Cut(string(v.Str), "upstream_error:")
	reason, _, _ = strings.Cut(reason, "\r\n")
	return reason
}

// ask has one request answered, without a login, over a connection of its own. what is a word for it.
func ask(ctx context.Context, t Target, what string, request []byte) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	nc, err := open(ctx, t)
	if err != nil {
		return resp.Value{}, err
	}
	c := talk(nc, t.Addr)
	defer c.Close()
	return c.exchange(ctx, what, request)
}

// greet logs in, selects the database and sets the name.
func (c *Conn) greet(ctx context.Context, t Target, name string) error {
	hello := []string{"HELLO", "3"}
	if t.Password != "" {
		hello = append(hello, "AUTH", cmp.Or(t.User, "default"), t.Password)
	}
	_, err := c.Do(ctx, hello...)
	if isCode(err, "NOAUTH") && t.Password == "" {
		err = fmt.Errorf("%w (--url has no password)", Error("NOAUTH Authentication required."))
	}
	if err == nil && t.DB != 0 {
		_, err = c.Do(ctx, "SELECT", strconv.Itoa(t.DB))
	}
	if err == nil {
		_, err = c.Do(ctx, "CLIENT", "SETNAME", name)
		if isCode(err, "NOPERM") {
			err = nil // the name is a courtesy
		}
	}
	return err
}

// Do sends a command and returns its reply. An error reply is an Error. After any other error the connection is of no
// more use.
func (c *Conn) Do(ctx context.Context, args ...string) (resp.Value, error) {
	return c.exchange(ctx, args[0], resp.AppendCommand(nil, args...))
}

func (c *Conn) exchange(ctx context.Context, what string, request []byte) (resp.Value, error) {
	began := time.Now()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.nc.SetWriteDeadline(deadline)
	}
	if _, err := c.nc.Write(request); errors.Is(err, os.ErrDeadlineExceeded) {
		return resp.Value{}, unanswered(c.addr, what, began)
	} else if err != nil {
		return resp.Value{}, fmt.Errorf("%s: %w (%w)", c.addr, errClosed, err)
	}
	select {
	case v := <-c.replies:
		if v.IsError() {
			// Behind these words stand arguments of a command that Redis does not know: a password, perhaps.
			text, _, _ := strings.Cut(string(v.Str), ", with args beginning with")
			return v, Error(text)
		}
		return v, nil
	case <-c.done:
		return resp.Value{}, fmt.Errorf("%s: %w", c.addr, errClosed)
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return resp.Value{}, err
		}
		return resp.Value{}, unanswered(c.addr, what, began)
	}
}

// Pushes are out-of-band messages of the proxy, as lists of words.
func (c *Conn) Pushes() <-chan resp.Value { return c.pushes }

// Closed is closed when the connection has ended.
func (c *Conn) Closed() <-chan struct{} { return c.done }

// Close ends the connection.
func (c *Conn) Close() {
	_ = c.nc.Close()
	c.reader.Wait()
}

// longestReply bounds the memory of a reply. The longest one lists all held locks.
const longestReply = 512 << 20

// read takes replies apart until the connection ends.
func (c *Conn) read() {
	defer close(c.done)
	defer c.nc.Close()
	var buf []byte
	var scan resp.Scanner
	chunk := make([]byte, 16<<10)
	for seen := 0; ; {
		n, whole, err := scan.Scan(buf[seen:])
		if err != nil {
			return
		}
		if seen += n; !whole {
			n, err := c.nc.Read(chunk)
			if n == 0 && err != nil || len(buf) > longestReply {
				return
			}
			buf = append(buf, chunk[:n]...)
			continue
		}
		v, _, err := resp.Decode(bytes.Clone(buf[:seen]))
		if err != nil || !c.deliver(v) {
			return
		}
		buf, seen = buf[seen:], 0
	}
}

// deliver passes a frame on. false: no caller has asked for it.
func (c *Conn) deliver(v resp.Value) bool {
	if v.Kind == resp.Push {
		select {
		case c.pushes <- v:
		default:
		}
		return true
	}
	timer := time.NewTimer(dialLimit) // a caller has given up, and closes the connection
	defer timer.Stop()
	select {
	case c.replies <- v:
		return true
	case <-timer.C:
		return false
	}
}
