package lockcmds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
)

func TestFailureSaysWhetherAnythingHappened(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("run acquire: %w", script.Error("NOPERM no")), "-NOPERM no\r\n"},
		{&contract.UnsentError{Reply: []byte("-NOUPSTREAM away\r\n")}, "-NOUPSTREAM away\r\n"},
		{fmt.Errorf("run acquire: %w", contract.ErrUnsent), "-NOUPSTREAM nothing was sent\r\n"},
		{contract.ErrInDoubt, "-INDOUBT sent, but no answer came\r\n"},
		{errors.New("strange"), "-INDOUBT sent, but no answer came\r\n"}, // it is not known to be harmless
	} {
		if got := string(failureReply(c.err)); got != c.want {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}

func TestNotHeldNamesWhatTheCommandNamed(t *testing.T) {
	for want, got := range map[string][]byte{
		"this connection": notHeldReply(false, 0), "this OWNER": notHeldReply(true, 0), "with this fence": notHeldReply(true, 7), "holds the lock already": noReentryReply(grammar.Lock, 2),
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q: %q", want, got)
		}
	}
	if got := string(noReentryReply(grammar.TryLock, 3)); got != "_\r\n" {
		t.Errorf("TRYLOCK: %q", got)
	}
}

func TestAppendInfoIsAMap(t *testing.T) {
	i := lockInfo{Hold: Hold{Owner: "o", Holds: 1, Fence: 7, TTL: 5 * time.Millisecond, Fair: 2, Waiters: 3}, HeldFor: -1}
	for proto, head := range map[int]string{2: "*14\r\n", 3: "%7\r\n"} {
		if got := string(appendLockInfo(nil, proto, i)); !strings.HasPrefix(got, head) || strings.Contains(got, "client") {
			t.Errorf("protocol %d: %q", proto, got)
		}
	}
	i.HeldFor = 1500 * time.Millisecond
	if got := string(appendLockInfo(nil, 3, i)); !strings.HasPrefix(got, "%8\r\n") || !strings.Contains(got, "held-ms\r\n:1500\r\n") {
		t.Errorf("held: %q", got)
	}
	i.HeldFor, i.Mode = 0, script.ModeShared
	i.Holders = []lockHolder{{Holder: script.Holder{Owner: "o", Holds: 1}}, {Holder: script.Holder{Owner: "p", Holds: 2}}}
	if got := string(appendLockInfo(nil, 3, i)); !strings.HasPrefix(got, "%9\r\n") || !strings.Contains(got, "held-ms\r\n:0\r\n$4\r\nmode\r\n$6\r\nshared\r\n$7\r\nholders\r\n*2\r\n%4\r\n") {
		t.Errorf("shared: %q", got)
	}
	i.Holders = nil
	i.Key, i.Client = "k", contract.ClientInfo{Addr: "10.0.0.1:1", Name: "n"}
	if got := string(appendLockInfo(nil, 3, i)); !strings.HasPrefix(got, "%11\r\n$3\r\nkey\r\n$1\r\nk\r\n") || !strings.Contains(got, "10.0.0.1:1") {
		t.Errorf("of a list: %q", got)
	}
}

func TestASlowWaitIsShownWithTheHolderBehindWhichItBegan(t *testing.T) {
	party := func(name string) observe.Party {
		return observe.Party{Owner: name, Addr: name + ":1", Name: name + "!"}
	}
	one := observe.Ending{
		At: time.Unix(9, 0), Kind: observe.Wait, Key: "k", Mode: "exclusive", By: party("o"), Behind: party("p"),
		Took: time.Millisecond, Outcome: "granted", Reason: "none",
	}
	two := one
	two.Kind = observe.Hold
	begin := "id :%d time :9 kind %s key k mode exclusive owner o duration-us :1000 outcome granted "
	want := "*[%[" + fmt.Sprintf(begin, 1, "wait") + "client o:1 name o! behind p behind-client p:1 behind-name p!] " +
		"%[" + fmt.Sprintf(begin, 2, "hold") + "reason none client o:1 name o!]]"
	if got := locktest.Show(slowReply(3, []*observe.Entry{{ID: 1, Ending: one}, {ID: 2, Ending: two}})); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
