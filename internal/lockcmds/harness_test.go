package lockcmds

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// confirm confirms all channels that are wanted.
func (w *lockWorld) confirm() {
	all := w.Wanted
	w.Wanted = nil
	for _, channel := range all {
		listener{&w.keeper}.Confirmed(channel)
	}
	w.Work()
}

// waitingClient is one session. The test answers its scripts.
type waitingClient struct {
	locktest.Client

	w  *lockWorld
	id uint64
}

func (w *lockWorld) client(id uint64) *waitingClient { return &waitingClient{w: w, id: id} }

func (c *waitingClient) caller() contract.Caller {
	return contract.Caller{
		Session: c, ID: c.id, Token: string(rune('a' + c.id)), Losses: &contract.Losses{}, Proto: 2, NothingPending: true,
	}
}

// sends starts an acquire.
func (c *waitingClient) sends(line string) *waitingClient {
	c.w.t.Helper()
	cmd, err := grammar.Parse(locktest.Words(line))
	if err != nil {
		c.w.t.Fatal(err)
	}
	c.w.Engine.Start(c.caller(), cmd)
	c.Unlock()
	return c
}

// answered answers the oldest script on the session's own connection.
func (c *waitingClient) answered(v resp.Value, err error) {
	c.w.t.Helper()
	if len(c.Sent) == 0 {
		c.w.t.Fatal("no script is on its way")
	}
	c.Answer(v, err)
	c.w.Work()
}

// got checks the replies so far.
func (c *waitingClient) got(want ...string) {
	c.w.t.Helper()
	if got, want := strings.Join(c.Replies, ", "), strings.Join(want, ", "); got != want {
		c.w.t.Fatalf("session %d: replies %q, want %q", c.id, got, want)
	}
}

// grantOfFence is Redis's answer "granted", and busy is "not granted".
func grantOfFence(fence int64) resp.Value { return locktest.Numbers(1, fence, 1) }

func busy(pttl time.Duration) resp.Value { return locktest.Numbers(0, cmp.Or(pttl.Milliseconds(), -1)) }

// count is the number of waiters of a lock. Requires no locks.
func (e *Engine) count(lock string) (all int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, _ = e.countLocked(lock)
	return all
}

// callWorld is calls without I/O.
type callWorld struct {
	*locktest.World
	*calls
}

func newCallWorld(t *testing.T) *callWorld {
	w := locktest.NewWorld()
	return &callWorld{w, &calls{
		Client: scriptRunner{Topology: w}, Jobs: w, Clock: w, Life: t.Context(), Log: zap.NewNop(),
	}}
}
