package lockcmds

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
)

func TestEngineRunsOnTheEmbeddedRedis(t *testing.T) {
	srv := miniredis.RunT(t)
	p := startProxy(t, nil, func(o *Options) { o.Redis = redislink.New(redislink.Options{Addr: srv.Addr()}) })
	p.addr = srv.Addr()
	a, b, c := p.session(2), p.session(3), p.session(2)
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		a.fence("LOCK k")
		b.want("TRYLOCK k", "(nil)")
		b.want(verb+" k WAIT 30", "(nil)")
		b.waits(verb + " k")
		c.waits(verb + " k")
		a.quiet(20 * time.Millisecond)
		a.want("UNLOCK k", ":1")
		fenceIn(t, b.reply())
		b.want("UNLOCK k", ":1")
		fenceIn(t, c.reply())
		c.want("UNLOCK k", ":1")
		c.want("UNLOCK k", notHeldWords)
	}
	a.fence("LOCK k LIMIT 2")
	b.fence("LOCK k LIMIT 2 PX 60000")
	c.want("TRYLOCK k LIMIT 2", "(nil)")
	c.waits("LOCK k LIMIT 2")
	a.want("UNLOCK k", ":1")
	fenceIn(t, c.reply())
	b.want("EXTENDLOCK k PX 1000", ":1")
	b.want("UNLOCK k", ":1")
	c.want("UNLOCK k", ":1")
	fence := itoa(a.fence("LOCK k"))
	want := "%[owner " + p.ownerOf(a) + " holds :1 ttl-ms :6000 fence :" + fence + " fair-waiters :0 local-waiters :0 client 10.0.0.1:1 name test held-ms :"
	if got := b.do("LOCKINFO k"); !strings.HasPrefix(got, want) {
		t.Errorf("LOCKINFO: %s", got)
	}
	b.want("FORCEUNLOCK k", ":1")
	a.want("UNLOCK k", lostLeaseWords)
}
