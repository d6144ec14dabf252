package proxy

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A command that blocks is at Redis before what another client sends after it, as on direct connections: nobody waits for a
// sign that it is.
func TestBlockingCommandIsAtRedisFirst(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		for _, login := range []string{"PING", "SELECT 9", "HELLO 3 AUTH app pw"} {
			popper, pusher := dialClient(t, address(srv)), dialClient(t, address(srv))
			for _, c := range []*peer{popper, pusher} {
				c.raw(inline(login, "PING"))
				for range 2 {
					if _, err := c.frame(); err != nil {
						t.Fatal(err)
					}
				}
			}
			redistest.Eventually(t, patience, "a spare pin", func() bool {
				work, _ := srv.shared.Upstream.Pins()
				return work.Idle > 0 && work.Ready == work.Idle
			})
			late := 0
			for i := range 20 {
				list := "l" + strconv.Itoa(i)
				popper.send("BLPOP", list, "0")
				if srv.Stats().Loops != 1 {
					// The readers of two clients may run in any order, unless one loop reads both.
					redistest.Eventually(t, patience, "the command to be read", func() bool { return srv.sessionHasPin(popper) })
				}
				pusher.raw(inline("LPUSH "+list+" v", "LLEN "+list))
				popper.expectReply("*2")
				pusher.expectReply(":1")
				got, err := pusher.frame()
				if err != nil {
					t.Fatal(err)
				}
				if got != ":0\r\n" {
					late++
				}
			}
			// If both connections are readable when Redis looks, Redis may read them in either order, as those of direct clients.
			if late > 3 {
				t.Errorf("%s: in %d of 20 rounds the element was in the list when it was pushed", login, late)
			}
		}
	})
}

func (srv *Server) sessionHasPin(c *peer) bool {
	return srv.sessionOf(c).Status().Pin != ""
}

// The spares of identities are bounded with the other pins, and go for those who need a pin.
func TestSparesMakeRoom(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		var peers []*peer
		for db := range 8 {
			c := dialClient(t, address(srv))
			c.raw(inline("SELECT "+strconv.Itoa(db), "PING"))
			c.expectReply("+OK")
			c.expectReply("+PONG")
			peers = append(peers, c)
		}
		redistest.Eventually(t, patience, "spares", func() bool { return srv.Stats().PinsIdle == 4 })
		for _, c := range peers[:4] {
			c.send("MULTI")
			c.expectReply("+OK")
		}
		if s := srv.Stats(); s.PinsOpen > 4 {
			t.Errorf("%d pins of 4", s.PinsOpen)
		}
		peers[5].send("MULTI")
		if got, _ := peers[5].frame(); !strings.HasPrefix(got, "-OVERLOADED") {
			t.Errorf("a fifth pin of four: %q", got)
		}
	}, func(o *Options) { o.Upstream.Pins.Max, o.Upstream.Pins.MaxPerOwner, o.Upstream.Pins.Wait = 4, 4, 50e6 })
}
