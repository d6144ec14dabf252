package load

import (
	"errors"
	"testing"
)

func TestFrameEndsWhereTheReplyEnds(t *testing.T) {
	for _, reply := range []string{
		"+OK\r\n", "-ERR no\r\n", ":12\r\n", "$-1\r\n", "$0\r\n\r\n", "$3\r\nabc\r\n", "*-1\r\n", "*0\r\n",
		"*2\r\n:1\r\n$3\r\nabc\r\n", "*2\r\n*1\r\n+a\r\n:2\r\n", "_\r\n", "%1\r\n+a\r\n:1\r\n", ">2\r\n+a\r\n+b\r\n",
	} {
		if _, n, err := frame([]byte(reply + ":7\r\n")); err != nil || n != len(reply) {
			t.Errorf("%q: %d bytes, %v; want %d", reply, n, err, len(reply))
		}
	}
}

func TestFrameKnowsThatMoreIsToCome(t *testing.T) {
	reply := "*2\r\n*1\r\n$3\r\nabc\r\n:2\r\n"
	for n := range len(reply) {
		if _, _, err := frame([]byte(reply[:n])); !errors.Is(err, errPartial) {
			t.Errorf("%q: %v", reply[:n], err)
		}
	}
}

func TestFrameOfALongStringIsKnownFromItsStart(t *testing.T) {
	head, n, err := frame([]byte("$1048576\r\nxx"))
	if err != nil || string(head) != "$1048576" || n != 10+1048576+2 {
		t.Fatalf("%q, %d bytes, %v", head, n, err)
	}
}

func TestFrameRefusesWhatIsNoReply(t *testing.T) {
	for _, reply := range []string{"hello\r\n", "$x\r\n", "*x\r\n", "\n"} {
		if _, _, err := frame([]byte(reply)); err == nil {
			t.Errorf("%q is taken for a reply", reply)
		}
	}
}
