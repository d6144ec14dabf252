package load

import (
	"bytes"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// NewHistogram holds latencies in ns from 1 µs to 2 minutes with 3 digits.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(2*time.Minute), 3)
}

// Recorder notes latencies while it is on.
type Recorder struct {
	On   bool
	Hist *hdrhistogram.Histogram
}

func (r *Recorder) record(ns int64) {
	if r.On {
		_ = r.Hist.RecordValue(min(max(ns, int64(time.Microsecond)), int64(2*time.Minute))) // in range
	}
}

// Commands are commands to pick from at random.
type Commands [][]byte

func (cs Commands) pick() []byte { return cs[rand.IntN(len(cs))] }

// Closed keeps Depth commands on each connection: when the last one is answered, the next are sent.
type Closed struct {
	Recorder
	Commands Commands
	Depth    int
}

// Start sends the first commands.
func (w *Closed) Start(c *Conn) { w.batch(c) }

func (w *Closed) batch(c *Conn) {
	c.State = w.Depth
	for range w.Depth {
		c.Send(w.Commands.pick(), 0, c.loop.now)
	}
}

// Reply counts a reply, and sends when all are in.
func (w *Closed) Reply(c *Conn, r Reply) {
	w.record(c.loop.now - r.Sent)
	if c.State--; c.State == 0 {
		w.batch(c)
	}
}

// End adds the commands that have no reply yet, with the time that they have waited so far: a server that has stopped
// must not look as it did before.
func (w *Closed) End(l *Loop) {
	for _, c := range l.Conns() {
		c.Outstanding(func(_ int, at int64) { w.record(l.now - at) })
	}
}

// Open spreads commands at a constant rate over the connections of a loop, whether or not earlier ones are answered.
type Open struct {
	Recorder
	Commands Commands
	from     int64
	next     int
}

// Begin starts the rate, in commands per second.
func (w *Open) Begin(l *Loop, rate float64) error {
	return l.Pace(rate, func(due int64) {
		conns := l.Conns()
		conns[w.next%len(conns)].Send(w.Commands.pick(), 0, due)
		w.next++
	})
}

// Record counts commands that are due from now on.
func (w *Open) Record(l *Loop) { w.On, w.from = true, l.now }

// End adds the commands that have no reply yet, with the time that they have waited so far.
func (w *Open) End(l *Loop) {
	for _, c := range l.Conns() {
		c.Outstanding(func(_ int, at int64) {
			if at >= w.from {
				w.record(l.now - at)
			}
		})
	}
}

// Start does nothing: commands come with time.
func (w *Open) Start(*Conn) {}

// Reply counts a reply.
func (w *Open) Reply(c *Conn, r Reply) {
	if r.Sent >= w.from {
		w.record(c.loop.now - r.Sent)
	}
}

// Once sends one command on each connection as it is made, and counts from the beginning of the connection.
type Once struct {
	Recorder
	Command []byte
	Replies int
}

// Start sends the command.
func (w *Once) Start(c *Conn) { c.Send(w.Command, 0, c.loop.now) }

// Reply counts the reply.
func (w *Once) Reply(c *Conn, r Reply) {
	w.record(c.loop.now - r.Sent)
	w.Replies++
}

// Pairs acquires and releases a lock on each connection, over and over. The acquire command waits on the server's side.
type Pairs struct {
	Recorder                     // of the time from asking to holding
	Pair     *Recorder           // of the time from asking to having released; nil: not wanted
	Acquire  func(id int) []byte // of connection id; called once
	Release  func(id int) []byte // of connection id; called once
	Held     func(head []byte) bool

	Grants    int64   // while recording
	Handovers int64   // grants to another connection than the one before
	PerConn   []int64 // grants by connection, while recording

	acquire, release [][]byte
	holder           int
}

// What a connection of Pairs has sent.
const (
	acquiring = iota
	releasing
)

// Start asks for the first time.
func (w *Pairs) Start(c *Conn) {
	w.acquire = append(w.acquire, w.Acquire(c.ID))
	w.release = append(w.release, w.Release(c.ID))
	w.PerConn = append(w.PerConn, 0)
	c.Send(w.acquire[c.ID], acquiring, c.loop.now)
}

// Reply goes on with the release, or the next round.
func (w *Pairs) Reply(c *Conn, r Reply) {
	if !w.Held(r.Head) {
		c.loop.Fail(&unexpected{string(r.Head)})
		return
	}
	now := c.loop.now
	if r.Tag == acquiring {
		if w.On {
			w.record(now - r.Sent)
			w.Grants++
			w.PerConn[c.ID]++
			if w.holder != c.ID {
				w.Handovers++
			}
		}
		w.holder = c.ID
		c.Send(w.release[c.ID], releasing, r.Sent)
		return
	}
	if w.Pair != nil && w.On {
		w.Pair.On = true
		w.Pair.record(now - r.Sent)
	}
	c.Send(w.acquire[c.ID], acquiring, now)
}

// End adds the clients that still wait, with the time that they have waited so far: one that starves must not go
// uncounted.
func (w *Pairs) End(l *Loop) {
	for _, c := range l.Conns() {
		c.Outstanding(func(tag int, at int64) {
			if tag == acquiring {
				w.record(l.now - at)
			}
		})
	}
}

type unexpected struct{ head string }

func (u *unexpected) Error() string { return "unexpected reply to a lock command: " + u.head }

// Positive reports whether a reply is an integer above 0: a grant, or the end of a hold.
func Positive(head []byte) bool {
	return len(head) > 1 && head[0] == ':' && head[1] != '-' && !bytes.Equal(head, []byte(":0"))
}
