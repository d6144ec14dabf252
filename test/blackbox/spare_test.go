package blackbox

import (
	"strconv"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A command that blocks is at Redis before what another client sends after it, as on direct connections: nobody waits for a
// sign that it is.
func TestBlockingCommandIsAtRedisFirst(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	srv := proxytest.Start(t, redis)
	for _, login := range []string{"PING", "SELECT 9", "HELLO 3 AUTH app pw"} {
		popper, pusher := srv.Dial(t), srv.Dial(t)
		for _, c := range []*proxytest.Client{popper, pusher} {
			c.Raw(proxytest.Inline(login, "PING"))
			for range 2 {
				if _, err := c.Frame(); err != nil {
					t.Fatal(err)
				}
			}
		}
		proxytest.WaitFor(t, "a spare pin", func() bool {
			work, _ := srv.Shared().Upstream.Pins.Status()
			return work.Idle > 0 && work.Ready == work.Idle
		})
		late := 0
		for i := range 20 {
			list := "l" + strconv.Itoa(i)
			popper.Send("BLPOP", list, "0")
			if srv.Stats().Loops != 1 {
				// The readers of two clients may run in any order, unless one loop reads both.
				proxytest.WaitFor(t, "the command to be read", func() bool { return srv.StatusOf(popper).Pin != "" })
			}
			pusher.Raw(proxytest.Inline("LPUSH "+list+" v", "LLEN "+list))
			popper.Gets("*2")
			pusher.Gets(":1")
			got, err := pusher.Frame()
			if err != nil {
				t.Fatal(err)
			}
			if got != ":0\r\n" {
				late++
			}
		}
		// If both connections are readable when Redis looks, Redis may read them in either order, as those of direct clients.
		if late > 10 {
			t.Errorf("%s: in %d of 20 rounds the element was in the list when it was pushed", login, late)
		}
	}
}

// The spares of identities are bounded with the other pins, and go for those who need a pin.
func TestSparesMakeRoom(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 3, 50e6
	})
	var peers []*proxytest.Client
	for db := range 8 {
		c := srv.Dial(t)
		c.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "PING"))
		c.Gets("+OK", "+PONG")
		peers = append(peers, c)
	}
	proxytest.WaitFor(t, "spares", func() bool { return srv.Stats().PinsIdle == 3 })
	for _, c := range peers[:3] {
		c.Script("MULTI", "+OK")
	}
	if s := srv.Stats(); s.PinsOpen > 3 {
		t.Errorf("%d pins of 3", s.PinsOpen)
	}
	peers[5].Script("MULTI", "-OVERLOADED")
}
