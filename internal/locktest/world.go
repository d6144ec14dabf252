package locktest

import (
	"context"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// World is what a part of a lock engine lives in, without any I/O: the test answers the scripts, runs the jobs and
// moves the clock. It implements jobs.Clock, jobs.Runner and redislink.Topology.
type World struct {
	redislink.Topology
	Own *Node // the engine's own connection

	Time   time.Time // now
	Jobs   []func()  // that have not begun
	Wanted []string  // channels

	timers []*timer
}

// NewWorld returns a world in which nothing has happened.
func NewWorld() *World {
	w := &World{Time: time.Unix(1000, 0)}
	w.Own = &Node{World: w}
	return w
}

// Node is one connection of the engine to Redis.
type Node struct {
	redislink.Node
	World *World
	// To the next scripts: a resp.Value, a function that returns it, or an error. Without one, the answer to a script is
	// lost.
	Answers []any
	Asked   []string   // the names of the scripts
	Args    [][]string // of the scripts
}

// Node implements redislink.Topology.
func (w *World) Node(string) redislink.Node { return w.Own }

// Servers implements redislink.Topology.
func (*World) Servers() (s script.Servers) { return s }

// Now implements jobs.Clock.
func (w *World) Now() time.Time { return w.Time }

// Random implements jobs.Clock.
func (*World) Random(time.Duration) time.Duration { return 0 }

type timer struct {
	w       *World
	at      time.Time
	f       func()
	stopped bool
}

func (t *timer) Stop() bool {
	was := t.stopped
	t.stopped = true
	return !was
}

// Reset moves the timer behind those that were set before.
func (t *timer) Reset(d time.Duration) bool {
	was := t.Stop()
	t.w.timers = slices.DeleteFunc(t.w.timers, func(o *timer) bool { return o == t })
	t.at, t.stopped = t.w.Time.Add(d), false
	t.w.timers = append(t.w.timers, t)
	return was
}

// AfterFunc implements jobs.Clock.
func (w *World) AfterFunc(d time.Duration, f func()) jobs.Timer {
	t := &timer{w: w, at: w.Time.Add(d), f: f}
	w.timers = append(w.timers, t)
	return t
}

// Submit implements jobs.Runner.
func (w *World) Submit(_ jobs.Class, job func()) { w.Jobs = append(w.Jobs, job) }

// After implements jobs.Runner.
func (w *World) After(d time.Duration, c jobs.Class, job func()) jobs.Timer {
	return w.AfterFunc(d, func() { w.Submit(c, job) })
}

// Wait implements jobs.Runner.
func (*World) Wait(context.Context) {}

// Work runs the jobs that are there, and those that they submit.
func (w *World) Work() {
	for len(w.Jobs) > 0 {
		job := w.Jobs[0]
		w.Jobs = w.Jobs[1:]
		job()
	}
}

// Pass moves the clock, timer by timer, with the jobs of each.
func (w *World) Pass(d time.Duration) {
	end := w.Time.Add(d)
	for w.fire(end) {
		w.Work()
	}
	w.Time = end
}

// Settle runs the jobs, and moves the clock until no timer is left.
func (w *World) Settle() {
	for w.Work(); w.fire(w.Time.Add(1 << 62)); w.Work() {
	}
}

// fire runs the next timer that is due by end; false: there is none.
func (w *World) fire(end time.Time) bool {
	w.timers = slices.DeleteFunc(w.timers, func(t *timer) bool { return t.stopped })
	slices.SortStableFunc(w.timers, func(a, b *timer) int { return a.at.Compare(b.at) })
	if len(w.timers) == 0 || w.timers[0].at.After(end) {
		return false
	}
	t := w.timers[0]
	w.Time, t.stopped = t.at, true
	t.f()
	return true
}

// Eval implements redislink.Node by the next of the answers.
func (n *Node) Eval(_ context.Context, s redislink.Script, _, args []string) (resp.Value, error) {
	name := "script"
	if named, ok := s.(*script.Script); ok {
		name = named.Name()
	}
	if name == "tell" { // none of its callers minds the answer
		return resp.Value{}, nil
	}
	n.Asked, n.Args = append(n.Asked, name), append(n.Args, args)
	if len(n.Answers) == 0 {
		return resp.Value{}, contract.ErrInDoubt
	}
	next := n.Answers[0]
	n.Answers = n.Answers[1:]
	switch next := next.(type) {
	case error:
		return resp.Value{}, next
	case func() resp.Value:
		return next(), nil
	default:
		return next.(resp.Value), nil
	}
}

// Subscribe implements redislink.Node.
func (n *Node) Subscribe(channel string) { n.World.Wanted = append(n.World.Wanted, channel) }

// Unsubscribe implements redislink.Node.
func (*Node) Unsubscribe(string) {}

// Numbers is Redis's answer of these integers.
func Numbers(list ...int64) resp.Value {
	v := resp.Value{Kind: resp.Array}
	for _, n := range list {
		v.Elems = append(v.Elems, resp.Value{Kind: resp.Integer, Int: n})
	}
	return v
}

// Refusal is Redis's error reply of that text.
func Refusal(text string) resp.Value { return resp.Value{Kind: resp.SimpleError, Str: []byte(text)} }

// Client is a session in a World: the test answers its scripts. It implements contract.Session.
type Client struct {
	Sent    []contract.Call // without an answer
	Replies []string        // printed
	Pushes  []string
	Ended   bool

	later []func()
}

// Do implements contract.Session.
func (c *Client) Do(f func()) bool {
	if c.Ended {
		return false
	}
	f()
	c.Unlock()
	return true
}

// Unlock unlocks the session, and runs the functions of AfterUnlock.
func (c *Client) Unlock() {
	later := c.later
	c.later = nil
	for _, f := range later {
		f()
	}
}

// AfterUnlock implements contract.Session.
func (c *Client) AfterUnlock(f func()) { c.later = append(c.later, f) }

// Script implements contract.Session.
func (c *Client) Script(call contract.Call) { c.Sent = append(c.Sent, call) }

// OnBehind implements contract.Session. Nothing comes behind an acquire.
func (c *Client) OnBehind(string, func()) {}

// Push implements contract.Session.
func (c *Client) Push(push []byte) { c.Pushes = append(c.Pushes, Show(push)) }

// Reply implements contract.Session.
func (c *Client) Reply(reply []byte) { c.Replies = append(c.Replies, Show(reply)) }

// Answer answers the oldest script, with a reply of Redis or an error.
func (c *Client) Answer(v resp.Value, err error) {
	call := c.Sent[0]
	c.Sent = c.Sent[1:]
	if reply := call.For.Done(v, err); reply != nil {
		c.Reply(reply)
	}
	c.Unlock()
}

// Listen implements redislink.Topology: no message comes.
func (*World) Listen(redislink.Listener) {}
