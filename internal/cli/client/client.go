// Package client is one connection to a running proxy, for the subcommands. Unlike a client library it never connects again by itself and
// repeats nothing: the lock of a connection ends with the connection.
//
//	Dial ──► Conn ── Do ──► one reply
//	           └── Pushes ──► lock-lost
//
// Goroutines: a Conn has one that reads. It ends with the connection, and Close waits for it.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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

// IsCode reports whether err is an error reply with that code.
func IsCode(err error, code string) bool {
	var reply Error
	return errors.As(err, &reply) && reply.Code() == code
}

// ErrClosed says that the proxy has closed the connection.
var ErrClosed = errors.New("the proxy has closed the connection")

// Conn is a connection to a proxy. One goroutine at a time may use it.
type Conn struct {
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

// Dial connects and logs in. The connection speaks RESP3 if Redis does, so that losses are pushed. name is shown in lists of clients.
func Dial(ctx context.Context, t Target, name string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	nc, err := (&net.Dialer{KeepAlive: 5 * time.Second}).DialContext(ctx, t.Network, t.Addr)
	if err != nil {
		return nil, err
	}
	if t.TLS != nil {
		secure := tls.Client(nc, t.TLS)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			return nil, fmt.Errorf("TLS with %s: %w", t.Addr, err)
		}
		nc = secure
	}
	c := &Conn{nc: nc, replies: make(chan resp.Value), pushes: make(chan resp.Value, mostPushes), done: make(chan struct{})}
	c.reader.Go(c.read)
	if err := c.greet(ctx, t, name); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// greet logs in, selects the database and sets the name.
func (c *Conn) greet(ctx context.Context, t Target, name string) error {
	hello := []string{"HELLO", "3"}
	auth := []string{"AUTH", t.Password}
	if t.Password != "" {
		hello = append(hello, "AUTH", orElse(t.User, "default"), t.Password)
		if t.User != "" {
			auth = []string{"AUTH", t.User, t.Password}
		}
	}
	_, err := c.Do(ctx, hello...)
	var reply Error
	if errors.As(err, &reply) && reply.Code() == "ERR" { // a Redis before version 6
		err = nil
		if t.Password != "" {
			_, err = c.Do(ctx, auth...)
		}
	}
	if err == nil && t.DB != 0 {
		_, err = c.Do(ctx, "SELECT", strconv.Itoa(t.DB))
	}
	if err == nil {
		_, err = c.Do(ctx, "CLIENT", "SETNAME", name)
		if IsCode(err, "NOPERM") {
			err = nil // the name is a courtesy
		}
	}
	return err
}

// Do sends a command and returns its reply. An error reply is an Error. After any other error the connection is of no more use.
func (c *Conn) Do(ctx context.Context, args ...string) (resp.Value, error) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.nc.SetWriteDeadline(deadline)
	}
	if _, err := c.nc.Write(resp.AppendCommand(nil, args...)); err != nil {
		return resp.Value{}, err
	}
	select {
	case v := <-c.replies:
		if v.IsError() {
			return v, Error(v.Str)
		}
		return v, nil
	case <-c.done:
		return resp.Value{}, ErrClosed
	case <-ctx.Done():
		return resp.Value{}, context.Cause(ctx)
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
