package redislink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// checked is a connection for the library, which trusts Redis: bytes that it does not expect make it panic in
// goroutines of its own, or take memory that is only announced. So it gets whole replies, written anew, which it has
// asked for. The first other one ends the connection: Read returns an error, and the library makes another one.
type checked struct {
	net.Conn
	client *Client
	stop   func() bool // it does not end with the client any more

	// Owned by the reader.
	scan     resp.Scanner
	frame    []byte // the reply that is coming in
	out      []byte // for the library
	read     int    // bytes of out that it has
	err      error  // stays
	greeting int    // replies of the handshake that are due. No command of the engine is sent before

	// Owned by the writer.
	sent    resp.Scanner
	command []byte // that is being written
	leaving bool   // the last one was UNSUBSCRIBE: the library sends PING behind it

	mu  sync.Mutex // guards due
	due []due
}

// A due is what a command of the library is still to be answered by.
type due uint8

const (
	aReply   due = iota // one that is no push
	aConfirm            // the push of SUBSCRIBE, which has one channel here, or an error
	aLeave              // the PONG behind the push of UNSUBSCRIBE, or an error
	aPong               // the PONG behind that error
)

// maxFrame bounds a reply. Those of scripts are small, but other clients may publish on the channels of locks.
const maxFrame = 1 << 20

// largestSpare is the largest buffer that is kept.
const largestSpare = 64 << 10

var errMalformed = errors.New("redis has sent bytes that cannot be understood")

// Read implements net.Conn.
func (c *checked) Read(p []byte) (int, error) {
	for c.read == len(c.out) {
		if c.err != nil {
			return 0, c.err
		}
		n, err := c.Conn.Read(p)
		if n == 0 && err != nil {
			return 0, c.early(err)
		}
		if c.out, c.read = c.out[:0], 0; cap(c.out) > largestSpare {
			c.out = nil
		}
		if err := c.take(p[:n]); err != nil {
			c.client.broken(err)
			c.err = c.early(err)
		}
	}
	n := copy(p, c.out[c.read:])
	c.read += n
	return n, nil
}

// early has an error say that nothing was sent, if that is so.
func (c *checked) early(why error) error {
	switch {
	case why == nil || c.greeting == 0:
		return why
	case errors.Is(why, os.ErrDeadlineExceeded):
		why = context.DeadlineExceeded // the library has an error of its own for the other
	}
	return unreached(why)
}

// take takes bytes of Redis.
func (c *checked) take(b []byte) error {
	for len(b) > 0 {
		n, done, err := c.scan.Scan(b)
		if c.frame, b = append(c.frame, b[:n]...), b[n:]; len(c.frame) > maxFrame {
			return fmt.Errorf("%w: a reply of more than %d bytes", errMalformed, maxFrame)
		}
		var v resp.Value
		if err == nil && done {
			v, _, err = resp.Decode(c.frame)
		}
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w: %.40q", errMalformed, err, c.frame)
		case !done:
			return nil
		}
		if err := c.place(&v); err != nil {
			return fmt.Errorf("redis has sent a reply out of place: %w: %.40q", err, c.frame)
		}
		if c.greeting > 0 && v.Kind != resp.Push {
			if v.IsError() {
				return Refusal(v.Str)
			}
			if c.greeting--; c.greeting == 0 {
				c.client.reached()
			}
		}
		out, ok := appendPlain(c.out, &v)
		if !ok {
			return fmt.Errorf("%w: %.40q", errMalformed, c.frame)
		}
		if c.out, c.frame = out, c.frame[:0]; cap(c.frame) > largestSpare {
			c.frame = nil
		}
	}
	return nil
}

// appendPlain appends a reply in the one form that the library reads as it is meant. false: no command of the engine has
// such a reply.
func appendPlain(dst []byte, v *resp.Value) (_ []byte, ok bool) {
	switch v.Kind {
	case resp.SimpleString, resp.SimpleError:
		dst = append(dst, byte(v.Kind))
		if code := "ERR "; v.IsError() && bytes.HasPrefix(v.Str, []byte(code)) {
			dst = append(dst, code...) // the library removes one
		}
		return append(append(dst, v.Str...), '\r', '\n'), bytes.IndexByte(v.Str, '\n') < 0
	case resp.Integer:
		return resp.AppendInteger(dst, int(v.Int)), true
	case resp.Bulk, resp.Array, resp.Map, resp.Set, resp.Push, resp.Null:
	default:
		return dst, false
	}
	switch {
	case v.Null:
		return resp.AppendNull(dst, 3), true
	case v.Kind == resp.Bulk:
		return resp.AppendBulk(dst, v.Str), true
	}
	n := len(v.Elems)
	if v.Kind == resp.Map {
		n /= 2
	}
	dst = resp.AppendHeader(dst, byte(v.Kind), n)
	for i := range v.Elems {
		if dst, ok = appendPlain(dst, &v.Elems[i]); !ok || v.Elems[i].Kind == resp.Push {
			return dst, false
		}
	}
	return dst, true
}

// Write implements net.Conn. It notes the commands that end in p.
func (c *checked) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n, done, err := c.sent.Scan(rest)
		if err != nil {
			return 0, err
		}
		c.command, rest = append(c.command, rest[:n]...), rest[n:]
		if done {
			c.note(resp.Split(c.command, nil))
			c.command = c.command[:0]
		}
	}
	n, err := c.Conn.Write(p)
	return n, c.early(err)
}

// Close implements net.Conn.
func (c *checked) Close() error {
	c.stop()
	c.client.lost()
	return c.Conn.Close()
}

// note notes a command.
func (c *checked) note(args [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch name := string(args[0]); {
	case c.leaving:
		c.leaving = false
	case strings.HasSuffix(name, "UNSUBSCRIBE"):
		c.due, c.leaving = append(c.due, aLeave, aPong), true
	case strings.HasSuffix(name, "SUBSCRIBE"):
		c.due = append(c.due, aConfirm)
	default:
		c.due = append(c.due, aReply)
	}
}

var (
	errUnasked   = errors.New("nothing was asked")
	errNoConfirm = errors.New("it confirms no subscription")
	errNoLeave   = errors.New("it confirms no end of a subscription")
	errBusy      = errors.New("no subscription ends at present")
)

// place notes a reply. The error says that it is out of place: the library would panic, or give it to another command.
func (c *checked) place(v *resp.Value) error {
	confirm, refusal := isConfirm(v), v.Kind == resp.SimpleError
	if v.Kind == resp.Push && !confirm {
		return nil // a message, or the end of a subscription: that may come unasked
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.due) == 0 {
		return errUnasked
	}
	answered := 1
	switch head := c.due[0]; {
	case confirm && (head != aConfirm || len(v.Elems) != 3), head == aConfirm && !confirm && !refusal:
		return errNoConfirm
	case head == aLeave && isBusy(string(v.Str)):
		return errBusy // the library would take it for the PONG, which follows
	case head == aLeave && isPong(v):
		answered = 2
	case head == aLeave && !refusal, head == aPong && !isPong(v):
		return errNoLeave
	}
	c.due = c.due[answered:]
	return nil
}

// isConfirm reports whether the library takes a reply for that to a SUBSCRIBE.
func isConfirm(v *resp.Value) bool {
	if v.Kind != resp.Push || len(v.Elems) == 0 {
		return false
	}
	word := string(v.Elems[0].Str)
	return word == "subscribe" || word == "ssubscribe" || word == "psubscribe"
}

// isPong reports whether the library takes a reply for that to a PING.
func isPong(v *resp.Value) bool {
	if v.Kind == resp.SimpleError {
		return isBusy(string(v.Str)) || bytes.Contains(v.Str, []byte("'ping'"))
	}
	return v.Kind == resp.SimpleString && string(v.Str) == "PONG"
}

// isBusy reports whether Redis refuses everything at present: a script runs for long, or a dataset is being loaded.
func isBusy(refusal string) bool {
	return strings.HasPrefix(refusal, "BUSY") || strings.HasPrefix(refusal, "LOADING")
}
