package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

func words(text string) [][]byte {
	return resp.Split(resp.AppendCommand(nil, strings.Fields(text)...), nil)
}

func TestTheSmallestNumberIsTheReply(t *testing.T) {
	for _, one := range []struct {
		replies []string
		want    string
	}{
		{[]string{":2\r\n"}, ":2\r\n"},
		{[]string{":2\r\n", ":1\r\n", ":3\r\n"}, ":1\r\n"},
		{[]string{"*2\r\n:1\r\n:3\r\n", "*2\r\n:0\r\n:4\r\n"}, "*2\r\n:0\r\n:3\r\n"},
	} {
		r := beginWait(words("WAIT 2 0"), make([]topology.Node, len(one.replies)), true)
		for i, reply := range one.replies {
			got, done := r.answered([]byte(reply))
			if last := i == len(one.replies)-1; done != last || last && string(got) != one.want {
				t.Errorf("%q: %q, %v", one.replies, got, done)
			}
		}
	}
}

func TestLaterServersGetTheRestOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		args := words("WAIT 2 500")
		r := beginWait(args, []topology.Node{"a", "b", "c"}, true)
		if got := r.command(args, []byte("as it is")); string(got) != "as it is" {
			t.Errorf("%q", got)
		}
		time.Sleep(300 * time.Millisecond)
		r.answered([]byte(":1\r\n"))
		if got := r.command(args, nil); !strings.HasSuffix(string(got), "\r\n200\r\n") || r.at() != "b" {
			t.Errorf("%q at %s", got, r.at())
		}
		time.Sleep(time.Second)
		r.answered([]byte(":1\r\n"))
		if got := r.command(args, nil); !strings.HasSuffix(string(got), "\r\n1\r\n") {
			t.Errorf("%q: 0 would be no limit", got)
		}
	})
}

func TestACountWithoutAMarkIsRefused(t *testing.T) {
	hello := func(server, version string) []byte {
		return resp.AppendCommand(nil, "server", server, "version", version)
	}
	refused, ok := []byte("-NOPERM no\r\n"), []byte("+OK\r\n")
	for _, one := range []struct {
		hello            []byte
		publish, restore []byte
		clustered        bool
		want             string
	}{
		{hello("redis", "7.0.15"), refused, refused, true, ":1\r\n"},
		{hello("redis", "7.2.0"), []byte(":0\r\n"), refused, false, ":1\r\n"},
		{hello("redis", "7.2.0"), []byte(":0\r\n"), refused, true, "-NOPERM no\r\n"},
		{hello("redis", "8.0.1"), refused, ok, true, ":1\r\n"},
		{hello("valkey", "8.0.1"), refused, refused, false, "-NOPERM no\r\n"},
	} {
		r := beginWait(words("WAIT 1 0"), []topology.Node{"a"}, one.clustered)
		r.command(words("WAIT 1 0"), nil)
		for i, reply := range [][]byte{one.hello, one.publish, one.restore} {
			r.mark(i, reply)
		}
		if got, done := r.answered([]byte(":1\r\n")); string(got) != one.want || !done {
			t.Errorf("%+v: %q", one, got)
		}
	}
}
