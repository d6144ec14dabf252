package dial

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// dialer connects to a primary that is said to be at an address.
func dialer(t *testing.T, addr string, wait time.Duration) (*Dialer, *topology.Primary) {
	t.Helper()
	primary := topology.NewPrimary()
	primary.Publish(addr)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		wg.Wait()
	})
	return New(Options{
		Resolver: primary, Timeout: time.Minute, KeepAlive: time.Minute, Wait: wait, Spawn: wg.Go, Stop: stop,
	}), primary
}

func TestAReplicaIsNotThePrimary(t *testing.T) {
	server := redistest.Start(t)
	replica := redistest.StartReplica(t, server)
	d, primary := dialer(t, replica.Addr(), -1)
	for _, proto := range []int{2, 3} {
		if _, err := d.Dial(t.Context(), Target{At: "p", ID: Identity{Proto: proto}}); !errors.Is(err, topology.ErrNotPrimary) {
			t.Errorf("RESP%d: %v", proto, err)
		}
		select {
		case <-primary.Doubts():
		default:
			t.Errorf("RESP%d: the address is not in doubt", proto)
		}
	}
	d.Moved("p")
	nc, err := d.Connect(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, "HELLO 3\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = nc.SetReadDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(nc); len(b) > 0 || !errors.Is(err, topology.ErrNotPrimary) {
		t.Errorf("a lent connection read %q, %v", b, err)
	}
	if role := d.Role(t.Context(), Target{At: "p", ID: Identity{Proto: 2}}); role != Replica {
		t.Errorf("a replica has role %d", role)
	}
	primary.Publish(server.Addr())
	d.Moved("p")
	for want, id := range map[Role]Identity{Primary: {Proto: 2}, Untold: {User: "nobody", Password: "x", Proto: 2}} {
		if role := d.Role(t.Context(), Target{At: "p", ID: id}); role != want {
			t.Errorf("a primary has role %d, want %d", role, want)
		}
	}
	server.Do(t, "CONFIG", "SET", "requirepass", "x")
	if role := d.Role(t.Context(), Target{At: "p", ID: Identity{Proto: 2}}); role != Untold {
		t.Errorf("a primary with a password has role %d", role)
	}
	server.Kill()
	if role := d.Role(t.Context(), Target{At: "p", ID: Identity{Proto: 2}}); role != Unreachable {
		t.Errorf("a dead server has role %d", role)
	}
}

// silent accepts connections and says nothing, as a server does that is stopped.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func TestAnAttemptThatHangsIsGivenUpWhenTheServerMoves(t *testing.T) {
	server := redistest.Start(t)
	d, primary := dialer(t, silent(t), -1)
	begin := time.Now()
	moved := time.AfterFunc(50*time.Millisecond, func() { primary.Publish(server.Addr()) })
	defer moved.Stop()
	nc, err := d.Dial(t.Context(), Target{At: "p", ID: Identity{Proto: 3}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.HangUp(nc)
	if nc.RemoteAddr().String() != server.Addr() || time.Since(begin) > 20*time.Second {
		t.Errorf("connected to %s after %v", nc.RemoteAddr(), time.Since(begin))
	}
}

func TestCommandsWaitForAServerThatMoves(t *testing.T) {
	server := redistest.Start(t)
	refusing := redistest.Start(t)
	refusing.Kill()
	d, primary := dialer(t, refusing.Addr(), 20*time.Second)
	go func() {
		<-primary.Doubts() // a connection was refused
		primary.Publish(server.Addr())
		d.Moved("p")
	}()
	nc, err := d.Open(t.Context(), Target{At: "p", ID: Identity{Proto: 2}})
	if err != nil {
		t.Fatal(err)
	}
	d.HangUp(nc)

	d, _ = dialer(t, refusing.Addr(), 100*time.Millisecond)
	begin := time.Now()
	if _, err := d.Open(t.Context(), Target{At: "p", ID: Identity{Proto: 2}}); err == nil || time.Since(begin) < 100*time.Millisecond {
		t.Errorf("a server that stays away: %v after %v", err, time.Since(begin))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Open(ctx, Target{At: "p", ID: Identity{Proto: 2}}); err == nil {
		t.Error("connected without a wish")
	}
}

func TestAMoveEndsTheBackoffOfAll(t *testing.T) {
	server := redistest.Start(t)
	refusing := redistest.Start(t)
	refusing.Kill()
	d, primary := dialer(t, refusing.Addr(), -1)
	_, err := d.Dial(t.Context(), Target{At: "p", ID: Identity{Proto: 2}})
	contact := make(chan struct{}, 1)
	if err == nil || !d.Await("p", contact, err) {
		t.Fatalf("the server is away: %v", err)
	}
	defer d.Forget("p", contact)
	primary.Publish(server.Addr())
	d.Moved("p")
	select {
	case <-contact:
	default:
		t.Error("a lane that rests is not told of the move")
	}
	begin := time.Now()
	nc, err := d.Open(t.Context(), Target{At: "p", ID: Identity{Proto: 2}})
	if err != nil || time.Since(begin) > 5*time.Second {
		t.Fatalf("%v after %v", err, time.Since(begin))
	}
	d.HangUp(nc)
}
