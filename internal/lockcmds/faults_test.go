package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestWaitersSurviveARestartOfRedis(t *testing.T) {
	p, q := twoProxies(t, nil)
	a, b, c := p.session(2), q.session(2), q.session(2)
	a.fence("LOCK k")
	before := a.fence("LOCK j")
	b.waits("LOCK k")
	c.waits("FAIRLOCK j")
	p.srv.Kill()
	p.srv.Restart() // without data
	fenceIn(t, b.reply())
	if after := fenceIn(t, c.reply()); after <= before {
		t.Fatalf("fence %d after %d", after, before)
	}
}

func TestUnreachableRedisLosesTheLeaseAtItsDeadline(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 2 * time.Second })
	a := p.session(3)
	fence := itoa(a.fence("LOCK k"))
	srv.Pause()
	start := time.Now()
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" deadline]")
	if took := time.Since(start); took > 7*time.Second {
		t.Errorf("told after %v", took)
	}
	srv.Continue()
	a.want("UNLOCK k", lostLeaseWords)
}
