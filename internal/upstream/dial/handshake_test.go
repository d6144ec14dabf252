package dial

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// redis answers all steps of a handshake at once on one end of a pipe. It returns what it was sent.
func redis(t *testing.T, nc net.Conn, replies string) (sent <-chan string) {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		buf := make([]byte, 4096)
		n, _ := nc.Read(buf)
		got <- string(buf[:n])
		_, _ = io.WriteString(nc, replies)
	}()
	return got
}

func TestShakeSendsTheStepsOfTheIdentity(t *testing.T) {
	for _, c := range []struct {
		id      Identity
		sent    []string
		replies string
	}{
		{Identity{Proto: 2}, []string{"HELLO"}, "-ERR unknown command\r\n"},
		{Identity{Proto: 3, DB: 2}, []string{"HELLO", "3", "SELECT", "2"}, "%1\r\n+role\r\n+master\r\n+OK\r\n"},
		{Identity{Proto: 2, Password: "x"}, []string{"AUTH", "x", "HELLO"}, "+OK\r\n*0\r\n"},
		{Identity{Proto: 2, User: "u", Password: "x"}, []string{"AUTH", "u", "x", "HELLO"}, "+OK\r\n*0\r\n"},
		{Identity{Proto: 3, User: "u", Password: "x"}, []string{"HELLO", "3", "AUTH", "u", "x"}, "%0\r\n"},
	} {
		ours, theirs := net.Pipe()
		sent := redis(t, theirs, c.replies)
		if _, err := Shake(t.Context(), ours, c.id); err != nil {
			t.Errorf("%v: %v", c.id, err)
		}
		var words []string
		for i, line := range strings.Split(<-sent, "\r\n") {
			if i > 0 && line != "" && !strings.ContainsAny(line[:1], "$*") {
				words = append(words, line)
			}
		}
		if strings.Join(words, " ") != strings.Join(c.sent, " ") {
			t.Errorf("%v: sent %q, want %q", c.id, words, c.sent)
		}
		_ = ours.Close()
		_ = theirs.Close()
	}
}

func TestARefusalSaysWhatItMeans(t *testing.T) {
	for _, c := range []struct {
		reply                              string
		refused, rejected, wrong, notRedis bool
	}{
		{"-WRONGPASS invalid username-password pair\r\n", true, true, true, false},
		{"-NOAUTH Authentication required.\r\n", true, true, false, false},
		{"-ERR max number of clients reached\r\n", true, false, false, false},
		{"HTTP/1.1 400 Bad Request\r\n", false, false, false, true},
	} {
		ours, theirs := net.Pipe()
		redis(t, theirs, c.reply)
		_, err := Shake(t.Context(), ours, Identity{Proto: 3, User: "u", Password: "x"})
		if IsRefused(err) != c.refused || IsRejected(err) != c.rejected || IsWrongPassword(err) != c.wrong || errors.Is(err, ErrNotRedis) != c.notRedis {
			t.Errorf("%q: %v", c.reply, err)
		}
		if IsLasting(err) != (c.rejected || c.notRedis) || Cause(err) == "" {
			t.Errorf("%q: lasting %v, cause %q", c.reply, IsLasting(err), Cause(err))
		}
		var f Failure
		if f.Tried(err, true); !f.Hopeless() {
			t.Errorf("%q: another attempt may help", c.reply)
		}
		_ = ours.Close()
		_ = theirs.Close()
	}
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	_, err := Shake(t.Context(), ours, Identity{Proto: 2})
	if err == nil || IsRefused(err) {
		t.Errorf("a closed connection: %v", err)
	}
	var f Failure
	if f.Tried(err, true); f.Hopeless() || f.Refusal() != nil {
		t.Error("another attempt does not help after a closed connection, or there are words of Redis")
	}
}

func TestAnIdentityKeepsItsPasswordToItself(t *testing.T) {
	id := Identity{User: "u", Password: "secret", DB: 3, Proto: 2}
	if text := id.String() + id.GoString(); strings.Contains(text, "secret") || !strings.Contains(text, "u db3 resp2") {
		t.Error(text)
	}
}

// Redis quotes the arguments of a command that it does not know, as of one that was renamed.
func TestARefusalHasNoPassword(t *testing.T) {
	ours, theirs := net.Pipe()
	redis(t, theirs, "-ERR unknown command 'AUTH', with args beginning with: 'me' 'secret' \r\n")
	_, err := Shake(t.Context(), ours, Identity{Proto: 2, User: "me", Password: "secret"})
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "unknown command 'AUTH'") {
		t.Error(err)
	}
}
