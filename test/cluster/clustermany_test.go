package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// commandsOfManyKeysLeaveTurns: a client chooses the number of keys of a command. Others on the same event loop are answered before it is divided, and
// between the slices in which it is sent.
func commandsOfManyKeysLeaveTurns(t *testing.T, c *redistest.Cluster) {
	const keys = 4096
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	srv.Shared().Turns = make(admission.Turns, 1)
	p := srv.Dial(t)
	var others []*proxytest.Client // one of them is on the loop of p
	for range 8 {
		others = append(others, srv.Dial(t))
	}
	var mset, mget, del strings.Builder
	for i := range keys {
		fmt.Fprintf(&mset, " many:%d %0100d", i, i)
		fmt.Fprintf(&mget, " many:%d", i)
		fmt.Fprintf(&del, " many:%d", i)
	}
	for _, cmd := range []struct{ words, want string }{
		{"MSET" + mset.String(), "+OK\r\n"},
		{"MGET" + mget.String(), fmt.Sprintf("*%d\r\n$100\r\n", keys)},
		{"EXISTS" + mget.String() + " x y", fmt.Sprintf(":%d\r\n", keys)},
		{"DEL" + del.String(), fmt.Sprintf(":%d\r\n", keys)},
	} {
		name, _, _ := strings.Cut(cmd.words, " ")
		srv.Shared().Turns.Take()
		p.Send(strings.Fields(cmd.words)...)
		proxytest.WaitFor(t, "the command to be there", func() bool { return srv.Unanswered() == 1 })
		for range 4 { // slices, at least
			for _, other := range others {
				other.Script("PING", "+PONG")
			}
			if _, early := p.FrameWithin(0); early {
				t.Fatalf("%s is answered without a turn", name)
			}
			srv.Shared().Turns.Leave()
			srv.Shared().Turns.Take() // behind the goroutine that waits
		}
		srv.Shared().Turns.Leave()
		p.Gets(cmd.want)
	}
}

// A command of very many keys is refused if it would have to be divided.
func tooManyKeysAreRefused(t *testing.T, srv *proxytest.Proxy) {
	p := srv.Dial(t)
	args := []string{"EXISTS"}
	for i := range 16384 {
		args = append(args, fmt.Sprint("many:", i))
	}
	p.Send(args...)
	p.Gets(":0\r\n")
	args = append(args, "many:more")
	p.Send(args...)
	p.Gets("-CROSSSLOT at most 16384 keys of several slots are possible\r\n")
	for i := range args[1:] {
		args[1+i] = "{many}" + args[1+i]
	}
	p.Send(args...)
	p.Gets(":0\r\n")
	p.Script("PING", "+PONG", "INFO server", "$", "DBSIZE", ":", "ACL LOG RESET", "+OK", "SLOWLOG LEN", ":", "SLOWLOG GET 5", "*")
}
