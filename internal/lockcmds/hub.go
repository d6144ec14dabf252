package lockcmds

import (
	"time"

	"lockproxy/internal/lockcmds/clock"
	"lockproxy/internal/lockcmds/redislink"
)

// linger is how long a channel nobody wants stays subscribed: a contended lock would else subscribe and
// unsubscribe with every hand-over.
const linger = 2 * time.Second

// topic is one wanted channel. All who listen to it share it by reference count, whatever lock they wait for: "a" and "{a}" have
// one base channel, and that of "{a}:j" is the channel of the owner j who waits for "a". Its fields are guarded by Engine.mu.
type topic struct {
	channel string // immutable
	node    redislink.Node

	refs    int
	idle    time.Time            // since when refs is 0
	listed  bool                 // in hub.idle
	rooms   map[*room]struct{}   // whose base channel it is
	waiters map[*waiter]struct{} // who are woken by name
	ready   bool                 // it has been confirmed at least once; every later confirmation is a wake-up, so a gap loses nothing
	news    uint64               // confirmations and messages so far
}

// hub is the topics by channel. Its methods require e.mu, but for tidyUp and those of redislink.Listener, which take it.
type hub struct {
	e      *Engine // immutable
	topics map[string]*topic
	idle   []*topic    // those with refs 0, and some that have been wanted again meanwhile
	tidy   clock.Timer // looks through idle; nil: it is empty
}

// tidySlice is how many idle topics are dealt with while Engine.mu is held once.
const tidySlice = 256

// join returns the topic of a channel and counts one more reference.
func (h *hub) join(channel string) *topic {
	t := h.topics[channel]
	if t == nil {
		t = &topic{
			channel: channel, node: h.e.own.Node(channel), rooms: make(map[*room]struct{}), waiters: make(map[*waiter]struct{}),
		}
		h.topics[channel] = t
		t.node.Subscribe(channel)
	}
	t.refs++
	return t
}

// find returns the topic of a channel if there is one, without a reference.
func (h *hub) find(channel string) *topic { return h.topics[channel] }

// leave gives one reference back.
func (h *hub) leave(t *topic) {
	t.refs--
	if t.refs > 0 || h.topics[t.channel] != t {
		return
	}
	t.idle = h.e.clock.Now()
	if !t.listed {
		t.listed = true
		h.idle = append(h.idle, t)
	}
	if h.tidy == nil {
		h.tidy = h.e.clock.AfterFunc(linger, h.tidyUp)
	}
}

// tidyUp gives up channels that nobody has wanted for a while. It looks at each idle topic about once per linger, a slice at a time.
func (h *hub) tidyUp() {
	h.e.mu.Lock()
	defer h.e.mu.Unlock()
	h.tidy = nil
	if h.e.life.Err() != nil {
		return
	}
	now := h.e.clock.Now()
	n := min(len(h.idle), tidySlice)
	slice := h.idle[:n:n]
	h.idle = h.idle[n:]
	more := len(h.idle) > 0
	for _, t := range slice {
		switch {
		case t.refs > 0, h.topics[t.channel] != t:
			t.listed = false
		case now.Sub(t.idle) < linger:
			h.idle = append(h.idle, t)
		default:
			t.listed = false
			delete(h.topics, t.channel)
			t.node.Unsubscribe(t.channel)
		}
	}
	switch {
	case more:
		h.tidy = h.e.clock.AfterFunc(linger/100, h.tidyUp)
	case len(h.idle) > 0:
		h.tidy = h.e.clock.AfterFunc(linger, h.tidyUp)
	default:
		h.idle = nil
	}
}

// Confirmed implements redislink.Listener.
func (h *hub) Confirmed(channel string) {
	if t := h.known(channel); t != nil {
		h.e.onReady(t)
	}
}

// Published implements redislink.Listener.
func (h *hub) Published(channel string) {
	if t := h.known(channel); t != nil {
		h.e.onMessage(t)
	}
}

// Refused implements redislink.Listener.
func (h *hub) Refused(channel string, reason redislink.Refusal) {
	h.e.mu.Lock()
	t := h.topics[channel]
	delete(h.topics, channel)
	h.e.mu.Unlock()
	if t != nil {
		h.e.onRefused(t, reason)
	}
}

func (h *hub) known(channel string) *topic {
	h.e.mu.Lock()
	defer h.e.mu.Unlock()
	return h.topics[channel]
}
