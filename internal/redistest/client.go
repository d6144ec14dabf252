package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client returns a plain RESP2 client on the unix socket that sends nothing of its own accord but AUTH and HELLO, and
// never repeats a command. It is closed when t ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	c := s.newClient()
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Do runs one command on a connection of its own and returns the decoded reply: nil, string, int64 or []any. An error
// reply or a lost connection fails the test.
func (s *Server) Do(t testing.TB, args ...any) any {
	t.Helper()
	v, err := s.ask(args...)
	if err != nil {
		t.Fatalf("redistest: %v: %v", args, err)
	}
	return v
}

// ask is Do for answers that may be errors. A client library for each question would be a good part of what tests cost.
func (s *Server) ask(args ...any) (any, error) {
	nc, err := net.Dial("unix", s.socket)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(startLimit))
	var raw []byte
	password := s.password()
	if password != "" {
		raw = appendCommand(raw, []any{"AUTH", password})
	}
	if _, err := nc.Write(appendCommand(raw, args)); err != nil {
		return nil, err
	}
	in := bufio.NewReader(nc)
	if password != "" {
		if _, err := readReply(in); err != nil {
			return nil, err
		}
	}
	return readReply(in)
}

func appendCommand[T any](raw []byte, args []T) []byte {
	raw = fmt.Appendf(raw, "*%d\r\n", len(args))
	for _, arg := range args {
		text, isBytes := any(arg).([]byte)
		if !isBytes {
			text = fmt.Append(nil, arg)
		}
		raw = fmt.Appendf(raw, "$%d\r\n%s\r\n", len(text), text)
	}
	return raw
}

// readReply decodes a reply of RESP2.
func readReply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, rest := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil || kind == ':':
		return n, err
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = readReply(in); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *Server) newClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: "unix", Addr: s.socket, Password: s.password(), Protocol: 2, MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Eventually asks until the claim holds and fails the test if it does not within the limit. For states of Redis that
// nothing announces; use an event where there is one. The longer it waits, the less often it asks: a claim may cost the
// machine more than what it waits for.
func Eventually(t testing.TB, limit time.Duration, claim string, holds func() bool) {
	t.Helper()
	began := time.Now()
	for !holds() {
		waited := time.Since(began)
		if waited > limit {
			t.Fatalf("waited %v in vain for %s", limit, claim)
		}
		<-time.After(min(max(waited/8, probeEvery), probeAtLeast))
	}
}

// Info is the sum of the numbers in a section of INFO, each behind one of the names, "blocked_clients:" or
// "cmdstat_eval:calls=" for example. A name that is not there counts 0. Each call is a connection, which
// "total_connections_received:" counts.
func (s *Server) Info(t testing.TB, section string, names ...string) (sum int) {
	t.Helper()
	text, _ := s.Do(t, "INFO", section).(string)
	for _, name := range names {
		_, rest, found := strings.Cut(text, "\n"+name)
		if !found {
			continue
		}
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatalf("redistest: INFO %s: %s is not followed by a number", section, name)
		}
		sum += n
	}
	return sum
}

// AwaitReplicas returns when n replicas have all writes so far. WAIT on a new connection says that of Redis 7.0 alone:
// later versions count from the last write of the connection itself.
func (s *Server) AwaitReplicas(t testing.TB, n int) {
	t.Helper()
	written := s.Info(t, "replication", "master_repl_offset:")
	Eventually(t, startLimit, "the replicas to have all writes", func() bool {
		text, _ := s.Do(t, "INFO", "replication").(string)
		have := 0
		for _, m := range replicaOffset.FindAllStringSubmatch(text, -1) {
			if offset, _ := strconv.Atoi(m[1]); offset >= written {
				have++
			}
		}
		return have >= n
	})
}

var replicaOffset = regexp.MustCompile(`slave\d+:.*,offset=(\d+),`)

// Talk connects to a server, sends it commands one by one and reads the first line of each reply. The last command gets
// no answer yet if it begins with "~". Words are separated by spaces. The connection ends with t.
func Talk(t testing.TB, addr string, commands ...string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	in := bufio.NewReader(nc)
	for _, c := range commands {
		c, later := strings.CutPrefix(c, "~")
		if _, err := nc.Write(appendCommand(nil, strings.Fields(c))); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		if later {
			break
		}
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatalf("%s: %v", c, err)
		}
	}
	return nc
}
