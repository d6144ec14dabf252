package table

import "time"

// This file decides which channels an engine listens to, and for how long. It is a state machine: events come in as
// calls, and subscriptionHooks are its questions to the caller.
//
//	Listen ──hooks.Subscribe──► Confirmed ──► Told, for each message ──► Leave ──lingerTime──► hooks.Unsubscribe
//	                               ▲    └── the connection is lost ──┐
//	                               └────────────────────────────────┘
//
// All listeners of a channel share it, whatever lock they wait for: "a" and "{a}" have one base channel, and that of
// "{a}:j" is the channel of the owner j that waits for "a".

// lingerTime is the least time for which an unused channel stays subscribed: a contended lock would else subscribe and
// unsubscribe with every hand-over.
const lingerTime = 2 * time.Second

// channelSlice is how many unused channels one event deals with.
const channelSlice = 256

// subscriptionHooks are what subscriptions ask of their caller. They must not call subscriptions.
type subscriptionHooks struct {
	Subscribe   func(channel string)
	Unsubscribe func(channel string)
	Wait        func(d time.Duration) // start a timer: Due
}

// subscriptions is the wanted channels. L is what the caller knows of the listeners of one channel.
type subscriptions[L any] struct {
	hooks    subscriptionHooks
	channels map[string]*subscription[L]
	unused   unusedChannel[L]
}

// subscription is one wanted channel. It is kept while it has listeners, and for lingerTime after them.
type subscription[L any] struct {
	Listeners L // the caller's own

	name    string
	refs    int
	ready   bool   // confirmed at least once; every later confirmation is a wake-up, so a gap loses nothing
	told    uint64 // confirmations and messages so far
	refused bool   // by Redis

	listed bool // in subscriptions.unused
	since  int  // round of subscriptions.unused in which refs became 0
}

// unusedChannel are the channels without listeners, and some that have been wanted again meanwhile.
type unusedChannel[L any] struct {
	list  []*subscription[L]
	later []*subscription[L] // those of list that have been looked at in this round and may stay
	round int
	timed bool // Due follows
}

// newSubscriptions returns an empty set.
func newSubscriptions[L any](h subscriptionHooks) *subscriptions[L] {
	return &subscriptions[L]{hooks: h, channels: make(map[string]*subscription[L])}
}

// Listen returns the channel for one more listener. Each call is followed by one of Leave.
func (s *subscriptions[L]) Listen(name string) *subscription[L] {
	c := s.channels[name]
	if c == nil {
		c = &subscription[L]{name: name}
		s.channels[name] = c
		s.hooks.Subscribe(name)
	}
	c.refs++
	return c
}

// Leave is the end of a listener.
func (s *subscriptions[L]) Leave(c *subscription[L]) {
	c.refs--
	if c.refs > 0 || c.refused {
		return
	}
	u := &s.unused
	if c.since = u.round; c.listed {
		return
	}
	c.listed = true
	u.list = append(u.list, c)
	if !u.timed {
		u.timed = true
		s.hooks.Wait(lingerTime)
	}
}

// Due is the end of the timer of hooks.Wait. Channels that were unused for a whole round are unsubscribed. A round
// lasts for lingerTime.
func (s *subscriptions[L]) Due() {
	u := &s.unused
	n := min(len(u.list), channelSlice)
	some := u.list[:n:n]
	u.list = u.list[n:]
	for _, c := range some {
		switch {
		case c.refs > 0 || c.refused:
			c.listed = false
		case c.since == u.round:
			u.later = append(u.later, c)
		default:
			delete(s.channels, c.name)
			s.hooks.Unsubscribe(c.name)
		}
	}
	switch {
	case len(u.list) > 0:
		s.hooks.Wait(lingerTime / 100)
		return
	case len(u.later) == 0:
		*u = unusedChannel[L]{round: u.round + 1}
		return
	}
	u.list, u.later = u.later, nil
	u.round++
	s.hooks.Wait(lingerTime)
}

// Confirmed notes that Redis has confirmed the subscription, for the first time or after a new connection. missed:
// messages may have been lost since the connection before. It returns nil if the channel is not wanted, as Told and
// Refused do.
func (s *subscriptions[L]) Confirmed(name string) (c *subscription[L], missed bool) {
	if c = s.channels[name]; c == nil {
		return nil, false
	}
	missed = c.ready
	c.ready = true
	c.told++
	return c, missed
}

// Told notes a message.
func (s *subscriptions[L]) Told(name string) *subscription[L] {
	c := s.channels[name]
	if c != nil {
		c.told++
	}
	return c
}

// Refused notes that Redis does not let us listen to the channel. The next listener asks Redis anew.
func (s *subscriptions[L]) Refused(name string) *subscription[L] {
	c := s.channels[name]
	if c != nil {
		delete(s.channels, name)
		c.refused = true
	}
	return c
}

// Find returns a channel that is wanted, or was lately; else nil.
func (s *subscriptions[L]) Find(name string) *subscription[L] { return s.channels[name] }

// Len is how many channels are subscribed, or about to be.
func (s *subscriptions[L]) Len() int { return len(s.channels) }

// Ready reports whether the subscription is confirmed.
func (c *subscription[L]) Ready() bool { return c.ready }

// subscriptionMark is how much a channel had told when it was noted; the zero value: it was not subscribed.
type subscriptionMark[L any] struct {
	channel *subscription[L]
	told    uint64
}

// Mark notes what the channel has told so far. nil is a channel that is not subscribed.
func (c *subscription[L]) Mark() subscriptionMark[L] {
	if c == nil || !c.ready {
		return subscriptionMark[L]{}
	}
	return subscriptionMark[L]{c, c.told}
}

// Missed reports whether the channel has told something since the mark, or was not subscribed all the time. nil has
// told nothing since it was not subscribed.
func (m subscriptionMark[L]) Missed(c *subscription[L]) bool {
	return m.channel != c || c != nil && m.told != c.told
}
