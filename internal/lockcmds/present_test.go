package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Commands of an owner that has another grant than this proxy knows.

func TestExtensionIsForTheOwnersPresentGrant(t *testing.T) {
	p, q := twoProxies(t, leaseOfAMinute)
	redis := p.srv.Client(t)
	a, b := p.session(2), q.session(2)
	old := a.fence("LOCK k OWNER me")
	b.want("UNLOCK k OWNER me", ":1")
	b.fence("LOCK k OWNER me")
	late := script.Extend{Key: "k", Part: script.Part{Owner: "me", Session: p.nameOf(a), Fence: old}, Lease: time.Second}.Call()
	if _, err := runFor(t.Context(), p.e.client, late, script.DecodeExtended); err != nil {
		t.Fatal(err)
	}
	if left := redis.PTTL(t.Context(), "k").Val(); left < 30*time.Second {
		t.Errorf("a late copy of an extension of the earlier grant leaves %v", left)
	}
	a.want("EXTENDLOCK k PX 600000 OWNER me", ":1")
	if left := redis.PTTL(t.Context(), "k").Val(); left < 5*time.Minute {
		t.Errorf("an extension of the present grant leaves %v", left)
	}
}

func TestUnlockIsForWhatRedissonHasAcquiredForTheOwner(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, leaseOfAMinute), startProxy(t, srv, nil)
	redis := srv.Client(t)
	a, b := p.session(2), q.session(2)
	for _, command := range []string{"UNLOCK k OWNER me", "EXTENDLOCK k PX 60000 OWNER me"} {
		a.fence("LOCK k OWNER me")
		b.want("UNLOCK k OWNER me", ":1")
		redis.HSet(t.Context(), "k", "me", 1)
		redis.PExpire(t.Context(), "k", time.Minute)
		a.want(command, ":1")
		redis.Del(t.Context(), "k")
	}
}

func TestExtensionNeedsNoMemory(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	redis := p.srv.Client(t)
	a := p.session(2)
	for _, owner := range []string{"", " OWNER me"} {
		a.fence("LOCK k PX 60000" + owner)
		redis.ConfigSet(t.Context(), "maxmemory", "1")
		a.want("EXTENDLOCK k PX 60000"+owner, ":1")
		redis.ConfigSet(t.Context(), "maxmemory", "0")
		a.want("UNLOCK k"+owner, ":1")
	}
}
