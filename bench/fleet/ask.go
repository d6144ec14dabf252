package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/bench/load"
)

// askLimit bounds one question and its answer.
const askLimit = 30 * time.Second

// Client is one connection for a question now and then.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
}

// NewClient connects to addr.
func NewClient(addr string) (*Client, error) {
	conn, err := net.DialTimeout("tcp4", addr, askLimit)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &Client{conn: conn, r: bufio.NewReader(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() { _ = c.conn.Close() }

// Send sends a command.
func (c *Client) Send(args ...string) error { return c.send(askLimit, args...) }

func (c *Client) send(limit time.Duration, args ...string) error {
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if _, err := c.conn.Write(load.Command(args...)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// Receive reads a reply: a bulk string's text, or the line of any other. Arrays are not understood.
func (c *Client) Receive() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	line = strings.TrimRight(line, "\r\n")
	if strings.HasPrefix(line, "-") {
		return "", replyError(line[1:])
	}
	if !strings.HasPrefix(line, "$") || line == "$-1" {
		return line, nil
	}
	size, err := strconv.Atoi(line[1:])
	if err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	text := make([]byte, size+2)
	if _, err := io.ReadFull(c.r, text); err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	return string(text[:size]), nil
}

// replyError is an error that a server has answered.
type replyError string

func (e replyError) Error() string { return "error reply: " + string(e) }

// IsReply reports whether the server has answered with that error. Else the connection is of no further use.
func IsReply(err error) bool {
	var reply replyError
	return errors.As(err, &reply)
}

// DoWithin is Do with a limit of its own.
func (c *Client) DoWithin(limit time.Duration, args ...string) (string, error) {
	if err := c.send(limit, args...); err != nil {
		return "", err
	}
	return c.Receive()
}

// Do sends a command and waits for its reply.
func (c *Client) Do(args ...string) (string, error) {
	if err := c.Send(args...); err != nil {
		return "", err
	}
	return c.Receive()
}

// Do is one command on a connection of its own.
func Do(addr string, args ...string) (string, error) {
	c, err := NewClient(addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.Do(args...)
}

// Calls counts what a Redis has executed, from INFO commandstats: everything, commands inside of scripts included, and
// the scripts alone. Questions like this one do not count.
func Calls(addr string) (all, scripts float64, err error) {
	text, err := Do(addr, "INFO", "commandstats")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(text) {
		name, stats, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok || name == "info" || name == "ping" {
			continue
		}
		count, _, _ := strings.Cut(stats, ",")
		n, err := strconv.ParseFloat(count, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("commandstats: %w", err)
		}
		all += n
		if name == "eval" || name == "evalsha" {
			scripts += n
		}
	}
	return all, scripts, nil
}
