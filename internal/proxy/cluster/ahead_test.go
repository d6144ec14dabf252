package cluster

import (
	"strings"
	"testing"
)

// taken hands the replies to a transaction of two commands over, cut in two.
func taken(replies string, cut int) (a ahead, exec string) {
	a = newAhead(true, 3)
	for _, b := range []string{replies[:cut], replies[cut:]} {
		rest, _ := a.strip([]byte(b), strings.Count(b, "\n"))
		exec += string(rest)
	}
	return a, exec
}

func TestTheReplyToATransactionIsThatToItsExec(t *testing.T) {
	const queued, moved, aborted = "+QUEUED\r\n", "-MOVED 7 h:1\r\n", "-EXECABORT Transaction discarded because of "
	for _, c := range []struct{ before, exec, want string }{
		{queued + queued, "*2\r\n+OK\r\n-ERR x\r\n", ""},
		{queued + queued, "-TRYAGAIN x\r\n", ""},
		{queued + moved, aborted + "previous errors.\r\n", moved},
		{"-MOVED 8 h:1\r\n" + queued, aborted + "previous errors.\r\n", "-EXECABORT Transaction discarded because of: MOVED 8 h:1\r\n"},
		{"-OOM x\r\n" + moved, aborted + "previous errors.\r\n", "-EXECABORT Transaction discarded because of: OOM x\r\n"},
	} {
		replies := "+OK\r\n+OK\r\n" + c.before + c.exec
		for cut := range len(replies) {
			a, exec := taken(replies, cut)
			if exec != c.exec {
				t.Fatalf("%q, cut at %d: EXEC is answered %q", replies, cut, exec)
			}
			if c.want == "" {
				c.want = exec
			}
			if got := string(a.judge(7, []byte(exec))); exec[0] == '-' && got != c.want {
				t.Errorf("%q: %q, want %q", replies, got, c.want)
			}
		}
	}
}

// Without MULTI the commands have run, and their replies may be any.
func TestNothingIsSaidOfATransactionWhoseMultiWasRefused(t *testing.T) {
	replies := "+OK\r\n-NOPERM x\r\n$3\r\na\nb\r\n:1\r\n-ERR EXEC without MULTI\r\n"
	a := newAhead(true, 3)
	for i, b := range []string{replies[:7], replies[7:30], replies[30:]} {
		rest, _ := a.strip([]byte(b), []int{1, 2, 2}[i])
		if ran, over := a.ranAlone(); len(rest) > 0 || ran != (i > 0) || over != (i == 2) {
			t.Errorf("piece %d: %q is left, ran: %v, over: %v", i, rest, ran, over)
		}
	}
}
