package locks

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// conn is one client connection. It speaks RESP on its own, so that the proxy's idea of the protocol is not tested
// against itself. One goroutine at a time.
type conn struct {
	nc net.Conn
	rd *bufio.Reader
}

// reply is a decoded reply: nil, string, int64, errorReply, []any or pushReply.
type reply any

// errorReply is an error of the server, without the leading '-'.
type errorReply string

func (e errorReply) code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

type pushReply []any

// hangUp closes the connection; what it says is of no interest.
func (c *conn) hangUp() { _ = c.nc.Close() }

func newConn(nc net.Conn) *conn { return &conn{nc: nc, rd: bufio.NewReader(nc)} }

// dialRESP connects and, for version 3, says HELLO. The limit covers both.
func dialRESP(addr string, proto int, limit time.Duration) (*conn, error) {
	nc, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return nil, err
	}
	c := newConn(nc)
	if proto == 3 {
		v, err := c.do(limit, "HELLO", "3")
		if e, refused := v.(errorReply); refused {
			err = errors.New(string(e))
		}
		if err != nil {
			c.hangUp()
			return nil, err
		}
	}
	return c, nil
}

// do sends one command and returns its reply. An error means that the connection cannot be used any more and the
// outcome is unknown.
func (c *conn) do(limit time.Duration, args ...string) (reply, error) {
	if err := c.send(args...); err != nil {
		return nil, err
	}
	return c.next(limit)
}

// send writes one command.
func (c *conn) send(args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	_, err := io.WriteString(c.nc, b.String())
	return err
}

// next reads the next reply, behind pushes.
func (c *conn) next(limit time.Duration) (reply, error) {
	if err := c.nc.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	for {
		v, err := readReply(c.rd)
		if err != nil {
			return nil, err
		}
		if _, push := v.(pushReply); !push {
			return v, nil
		}
	}
}

func readReply(rd *bufio.Reader) (reply, error) {
	line, err := rd.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 3 || !strings.HasSuffix(line, "\r\n") {
		return nil, fmt.Errorf("malformed line %q", line)
	}
	rest := line[1 : len(line)-2]
	switch line[0] {
	case '+', ',', '(':
		return rest, nil
	case '-':
		return errorReply(rest), nil
	case '_':
		return nil, nil
	case '#':
		return rest == "t", nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("malformed line %q", line)
	}
	switch line[0] {
	case '$', '!', '=':
		if n < 0 {
			return nil, nil
		}
		b := make([]byte, n+2)
		if _, err := io.ReadFull(rd, b); err != nil {
			return nil, err
		}
		if line[0] == '!' {
			return errorReply(b[:n]), nil
		}
		return string(b[:n]), nil
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return nil, fmt.Errorf("unknown type in %q", line)
	}
	if n < 0 {
		return nil, nil
	}
	elems := make([]any, n)
	for i := range elems {
		if elems[i], err = readReply(rd); err != nil {
			return nil, err
		}
	}
	if line[0] == '>' {
		return pushReply(elems), nil
	}
	return elems, nil
}
