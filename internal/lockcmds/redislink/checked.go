package redislink

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// checked is a connection for the library, which trusts Redis: bytes that it does not expect make it panic in
// goroutines of its own, or take memory that is only announced. So it gets whole replies, written anew, which it has
// asked for. The first other one ends the connection: Read returns an error, and the library makes another one.
type checked struct {
	net.Conn
	broken func(why error) // is told why the connection is given up

	// Owned by the reader.
	scan  resp.Scanner
	frame []byte // the reply that is coming in
	out   []byte // for the library
	read  int    // bytes of out that it has
	err   error  // stays

	// Owned by the writer.
	sent    resp.Scanner
	command []byte // that is being written

	mu      sync.Mutex // guards the fields below
	pending []int      // the commands without an answer: SUBSCRIBE as its number of channels, or as below
	begun   bool       // pushes have come that belong to the first of them
}

// Commands in checked.pending.
const (
	ordinary = -iota // one reply
	leave            // UNSUBSCRIBE: pushes or an error, and then the answer to the PING that the library sends behind it
	afterLeave
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
			return 0, err
		}
		if c.out, c.read = c.out[:0], 0; cap(c.out) > largestSpare {
			c.out = nil
		}
		if c.err = c.take(p[:n]); c.err != nil {
			c.broken(c.err)
		}
	}
	n := copy(p, c.out[c.read:])
	c.read += n
	return n, nil
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
		dst = append(append(append(dst, byte(v.Kind)), v.Str...), '\r', '\n')
		return dst, bytes.IndexByte(v.Str, '\n') < 0
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
	return c.Conn.Write(p)
}

func (c *checked) note(args [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	form := ordinary
	switch name := string(args[0]); {
	case strings.HasSuffix(name, "UNSUBSCRIBE"):
		form = leave
	case strings.HasSuffix(name, "SUBSCRIBE"):
		form = len(args) - 1
	case len(c.pending) > 0 && c.pending[len(c.pending)-1] == leave:
		form = afterLeave
	}
	c.pending = append(c.pending, form)
}

var (
	errUnasked    = errors.New("nothing was asked")
	errNoConfirm  = errors.New("it confirms no subscription")
	errNoLeave    = errors.New("it confirms no end of a subscription")
	errBetween    = errors.New("it comes between confirmations")
	errBusyAtEnds = errors.New("no subscription ends at present")
)

// place notes a reply. The error says that it is out of place: the library would panic, or give it to another command.
func (c *checked) place(v *resp.Value) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	head := ordinary
	if len(c.pending) > 0 {
		head = c.pending[0]
	}
	if v.Kind == resp.Push {
		return c.pushed(v, head)
	}
	answered := 1
	switch isPong := isPong(v); {
	case len(c.pending) == 0:
		return errUnasked
	case head > 0 && (c.begun || v.Kind != resp.SimpleError):
		return errNoConfirm
	case head == afterLeave && !isPong:
		return errNoLeave
	case head == leave && isPong && (c.begun || v.Kind == resp.SimpleString):
		answered = 2
	case head == leave && isPong: // the library would take it for the answer to PING, which follows
		return errBusyAtEnds
	case head == leave && (c.begun || v.Kind != resp.SimpleError):
		return errNoLeave
	}
	if answered > len(c.pending) {
		return errUnasked
	}
	c.pending, c.begun = c.pending[answered:], false
	return nil
}

// pushed is place for a push.
func (c *checked) pushed(v *resp.Value, head int) error {
	word := ""
	if len(v.Elems) > 0 {
		word = string(v.Elems[0].Str)
	}
	switch confirms := len(v.Elems) == 3 && v.Elems[1].Kind != resp.Integer && v.Elems[2].Kind == resp.Integer; {
	case strings.HasSuffix(word, "unsubscribe"):
		if !confirms || head > 0 && c.begun {
			return errBetween
		}
		c.begun = c.begun || head == leave && len(c.pending) > 0
	case strings.HasSuffix(word, "subscribe"):
		if !confirms || head <= 0 {
			return errNoConfirm
		}
		c.pending[0]--
		if c.begun = c.pending[0] > 0; !c.begun {
			c.pending = c.pending[1:]
		}
	}
	return nil
}

// isPong reports whether the library takes a reply for that to a PING.
func isPong(v *resp.Value) bool {
	if v.Kind == resp.SimpleError {
		return bytes.HasPrefix(v.Str, []byte("LOADING")) || bytes.HasPrefix(v.Str, []byte("BUSY")) ||
			bytes.Contains(v.Str, []byte("'ping'"))
	}
	return v.Kind == resp.SimpleString && string(v.Str) == "PONG"
}
