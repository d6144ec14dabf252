package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
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

func TestEngineWaitsForARedisThatIsDown(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k PX 60000") // before the engine's own client has ever connected
	p.srv.Kill()
	b.Lane.Fail(contract.ErrInDoubt)
	b.send("LOCK k WAIT 60000") // its lane has broken: the outcome is in doubt
	b.quiet(200 * time.Millisecond)
	p.srv.Restart()
	fenceIn(t, b.reply())
}
