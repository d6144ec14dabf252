package blackbox

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A password that a user accepted once is refused when it is not good any more.
func TestPasswordThatIsGoodNow(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis)
	redis.Do(t, "ACL", "SETUSER", "u", "reset", "on", "nopass", "~*", "&*", "+@all")
	early := srv.Dial(t)
	early.Raw(proxytest.Inline("AUTH u junk", "PING"))
	early.Gets("+OK", "+PONG")
	redis.Do(t, "ACL", "SETUSER", "u", "resetpass", ">good")
	c := srv.Dial(t)
	c.Raw(proxytest.Inline("AUTH u junk", "AUTH u good", "SELECT 5", "SET k v", "MULTI", "EXEC", "LOCK lock GRACE 0", "UNLOCK lock"))
	c.Gets("-WRONGPASS", "+OK", "+OK", "+OK", "+OK", "*0", ":", ":1")
	early.Send("ACL", "WHOAMI") // as directly
	early.Gets("$1\r\nu\r\n")
}

// One client that walks through all databases leaves few connections behind.
func TestWalkThroughDatabases(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "1000")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.MaxLanes, o.Upstream.Pins.Max, o.MaxEngines = 64, 20, 8 })
	c := srv.Dial(t)
	for db := range 200 {
		c.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "SET k v", "MULTI", "EXEC", "LOCK lock GRACE 0", "UNLOCK lock"))
		c.Gets("+OK", "+OK", "+OK", "*0", ":", ":1")
	}
	if n := srv.Stats().Lanes; n > 8 {
		t.Errorf("%d lanes", n)
	}
	if s := srv.Stats(); s.PinsOpen > 16 {
		t.Errorf("%d pins", s.PinsOpen)
	}
	proxytest.WaitFor(t, "the connections to be few", func() bool {
		return strings.Count(redis.Do(t, "CLIENT", "LIST").(string), "\n") < 60
	})
}

// Over the limit of lanes a client is told so, another address still gets one, and nothing hangs.
func TestLanesAreBounded(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "100")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.MaxLanes = 8 })
	var residents []*proxytest.Client
	for db := 1; db <= 6; db++ {
		c := srv.Dial(t)
		c.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "SET k v"))
		c.Gets("+OK", "+OK")
		residents = append(residents, c)
	}
	const full = "-OVERLOADED no connection to share is free for this identity"
	late := srv.Dial(t)
	late.Raw(proxytest.Inline("SELECT 50", "SET k v")) // SET is not for the database of before
	late.Gets(full)
	late.Ends()
	late = srv.Dial(t)
	late.Raw(proxytest.Inline("SELECT 3", "GET k", "MULTI", "SELECT 50", "EXEC"))
	late.Gets("+OK", "$1", "+OK", "+QUEUED", "*1")
	late.Raw(proxytest.Inline("GET k", "SELECT 0", "PING")) // EXEC's own connection serves nothing more
	late.Gets(full, "+OK", "+PONG")
	other := proxytest.DialFrom(t, "127.0.0.2", srv.Addr())
	other.Raw(proxytest.Inline("SELECT 50", "SET k v"))
	other.Gets("+OK", "+OK")
	_ = residents[0].Conn.Close() // its lane is not used any more
	proxytest.WaitFor(t, "the lane to be given up", func() bool {
		late = srv.Dial(t)
		late.Send("SELECT", "51")
		got, err := late.Frame()
		return err == nil && got == "+OK\r\n"
	})
	late.Send("SET", "k", "v")
	late.Gets("+OK")
}

// Lock engines are bounded; one that somebody needs stays.
func TestLockEnginesAreBounded(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "100")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.MaxEngines = 4 })
	holder := srv.Dial(t)
	for db := 1; db <= 3; db++ {
		holder.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "LOCK lock GRACE 0"))
		holder.Gets("+OK", ":")
	}
	late := srv.Dial(t)
	late.Raw(proxytest.Inline("SELECT 4", "LOCK lock", "SELECT 3", "TRYLOCK lock", "SELECT 4"))
	late.Gets("+OK", "-OVERLOADED no lock engine is free for this identity", "+OK", "$-1", "+OK")
	for db := 1; db <= 3; db++ {
		holder.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "UNLOCK lock"))
		holder.Gets("+OK", ":1")
	}
	_ = holder.Conn.Close()
	proxytest.WaitFor(t, "an engine to make room", func() bool {
		late.Send("LOCK", "lock", "PX", "1000")
		got, err := late.Frame()
		return err == nil && strings.HasPrefix(got, ":")
	})
}
