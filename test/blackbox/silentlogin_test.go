package blackbox

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// silentServer runs a server in front of redis, and returns its address. It seems to be a Redis from 7.2 on: an AUTH that is refused has no answer
// behind answers that have not been written yet. The test fails if a connection that has carried the word "shared" carries a login of the user boss.
func silentServer(t *testing.T, redis *redistest.Server) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", redis.Addr())
			if err != nil {
				t.Error(err)
				_ = client.Close()
				return
			}
			var seen []byte
			all.Go(func() {
				passOn(server, client, func(commands []byte) []byte {
					if seen = append(seen, commands...); bytes.Contains(seen, []byte("shared")) && bytes.Contains(commands, []byte("boss")) {
						t.Error("a login on a shared connection")
					}
					return commands
				})
			})
			all.Go(func() { passOn(client, server, silenced) })
		}
	})
	return ln.Addr().String()
}

// passOn copies what from sends, as edit changes it, until its end.
func passOn(to, from net.Conn, edit func([]byte) []byte) {
	defer to.Close()
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		if err != nil {
			return
		}
		_, _ = to.Write(edit(chunk[:n]))
	}
}

// silenced is what such a server would have written.
func silenced(written []byte) []byte {
	written = bytes.ReplaceAll(written, []byte("$6\r\n7.0.15\r\n"), []byte("$6\r\n7.2.15\r\n"))
	for {
		i := bytes.Index(written, []byte("-WRONGPASS "))
		if i <= 0 {
			return written
		}
		end := i + bytes.IndexByte(written[i:], '\n') + 1
		written = append(written[:i:i], written[end:]...)
	}
}

// A client with a wrong password stays who it is, even if the server does not answer the refused login and something else comes in the
// place of the answer.
func TestTheAnswerToALoginIsNoOther(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "boss", "on", ">good", "~*", "&*", "+@all")
	redis.Do(t, "ACL", "SETUSER", "guest", "on", ">pw", "~*", "&*", "+@all")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Addr = silentServer(t, redis) })
	ask := func(c *proxytest.Client, lines []string, want ...string) {
		t.Helper()
		c.Raw(proxytest.Inline(lines...))
		for i, start := range want {
			if got, err := c.Frame(); err != nil || !strings.HasPrefix(got, start) {
				t.Fatalf("%q: frame %d is %q, %v, want %q", lines, i, got, err, start)
			}
		}
	}
	boss := srv.Dial(t)
	ask(boss, []string{"WATCH k", "AUTH boss good", "UNWATCH", "ACL WHOAMI"}, "+OK", "+OK", "+OK", "$4\r\nboss") // the proxy knows the password
	for _, login := range []string{"AUTH boss bad", "HELLO 2 AUTH boss bad", "AUTH boss good"} {
		c := srv.Dial(t)
		ask(c, []string{"AUTH guest pw", "MULTI", login, "SET k v", "PUBLISH ch m", "EXEC"},
			"+OK", "+OK", "-ERR Command not allowed inside a transaction", "+QUEUED", "+QUEUED", "-EXECABORT")
		ask(c, []string{"ACL WHOAMI", "GET k"}, "$5\r\nguest", "$-1")
	}
	for _, keep := range []string{"WATCH k", "CLIENT TRACKING ON BCAST"} {
		c := srv.Dial(t)
		ask(c, []string{"AUTH guest pw", "HELLO 3", keep}, "+OK", "%7", "+OK")
		ask(c, []string{"GET k", "AUTH boss bad", "GET k", "HELLO 3 AUTH boss bad", "ACL WHOAMI"}, "_", "-WRONGPASS", "_", "-WRONGPASS", "$5\r\nguest")
	}
	ask(boss, []string{"ECHO shared"}, "$6\r\nshared")
	ask(srv.Dial(t), []string{"AUTH boss good", "ACL WHOAMI", "HELLO 3 AUTH boss good", "AUTH boss bad", "ACL WHOAMI"},
		"+OK", "$4\r\nboss", "%7", "-WRONGPASS", "$4\r\nboss")
}
