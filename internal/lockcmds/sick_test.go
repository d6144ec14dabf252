package lockcmds

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// cut is a connection that may be cut silently: what is written then goes nowhere.
type cut struct {
	net.Conn
	off  *atomic.Bool
	lost chan struct{} // something has been written that went nowhere
}

func (c cut) Write(b []byte) (int, error) {
	if c.off.Load() {
		select {
		case c.lost <- struct{}{}:
		default:
		}
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func TestUnlockDoesNotWaitForARenewalOnASickConnection(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	c := cut{off: new(atomic.Bool), lost: make(chan struct{}, 1)}
	p := startProxy(t, srv, func(o *Options) {
		o.Lease = 12 * time.Second
		o.Redis = redislink.New(redislink.Options{Addr: srv.Addr(), Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", srv.Addr())
			return cut{conn, c.off, c.lost}, err
		}})
	})
	a := p.session(3)
	a.fence("LOCK once")
	a.fence("LOCK twice")
	a.fence("LOCK twice")
	if err := p.e.publish("x", "connected"); err != nil {
		t.Fatal(err)
	}
	c.off.Store(true)
	await(t, c.lost, "a renewal") // it is on its way for four seconds
	began := time.Now()
	a.want("UNLOCK once", ":1")
	a.want("UNLOCK twice", ":0")
	a.want("UNLOCK twice", ":1")
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("three releases took %v", d)
	}
	c.off.Store(false)
	a.fence("LOCK once") // what the sick connection delivers late does not touch the next grant
	a.want("UNLOCK once", ":1")
	equal(t, "losses", p.losses.Load(), int64(0))
}
