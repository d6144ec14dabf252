package queue

import "time"

// This file decides which channels an engine listens to, and for how long. It is a state machine: events come in as
// calls, and Hooks are what it asks for. It does no I/O, has no mutex and reads no clock.
//
//	Listen ──Hooks.Subscribe──► Confirmed ──► Told, for each message ──► Leave ──Linger──► Hooks.Unsubscribe
//	                               ▲    └── the connection is lost ──┐
//	                               └────────────────────────────────┘
//
// All listeners of a channel share it, whatever lock they wait for: "a" and "{a}" have one base channel, and that of
// "{a}:j" is the channel of the owner j that waits for "a".

// Linger is the least time for which an unused channel stays subscribed: a contended lock would else subscribe and
// unsubscribe with every hand-over.
const Linger = 2 * time.Second

// channelSlice is how many unused channels one event deals with.
const channelSlice = 256

// ChannelHooks are what a Set asks of its caller. They must not call the Set.
type ChannelHooks struct {
	Subscribe   func(channel string)
	Unsubscribe func(channel string)
	Wait        func(d time.Duration) // start a timer: Due
}

// Channels is the wanted channels. L is what the caller knows of the listeners of one channel.
type Channels[L any] struct {
	hooks    ChannelHooks
	channels map[string]*Channel[L]
	unused   unusedChannel[L]
}

// Channel is one wanted channel. It is kept while it has listeners, and for Linger after them.
type Channel[L any] struct {
	Listeners L // the caller's own

	name    string
	refs    int
	ready   bool   // confirmed at least once; every later confirmation is a wake-up, so a gap loses nothing
	told    uint64 // confirmations and messages so far
	refused bool   // by Redis

	listed bool // in Set.unused
	since  int  // round of Set.unused in which refs became 0
}

// unusedChannel are the channels without listeners, and some that have been wanted again meanwhile.
type unusedChannel[L any] struct {
	list  []*Channel[L]
	later []*Channel[L] // those of list that have been looked at in this round and may stay
	round int
	timed bool // Due follows
}

// NewChannels returns an empty set.
func NewChannels[L any](h ChannelHooks) *Channels[L] {
	return &Channels[L]{hooks: h, channels: make(map[string]*Channel[L])}
}

// Listen returns the channel for one more listener. Each call is followed by one of Leave.
func (s *Channels[L]) Listen(name string) *Channel[L] {
	c := s.channels[name]
	if c == nil {
		c = &Channel[L]{name: name}
		s.channels[name] = c
		s.hooks.Subscribe(name)
	}
	c.refs++
	return c
}

// Leave is the end of a listener.
func (s *Channels[L]) Leave(c *Channel[L]) {
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
		s.hooks.Wait(Linger)
	}
}

// Due is the end of the timer of Hooks.Wait. Channels that were unused for a whole round are unsubscribed. A round
// lasts for Linger.
func (s *Channels[L]) Due() {
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
		s.hooks.Wait(Linger / 100)
		return
	case len(u.later) == 0:
		*u = unusedChannel[L]{round: u.round + 1}
		return
	}
	u.list, u.later = u.later, nil
	u.round++
	s.hooks.Wait(Linger)
}

// Confirmed notes that Redis has confirmed the subscription, for the first time or after a new connection. missed:
// messages may have been lost since the connection before. It returns nil if the channel is not wanted, as Told and
// Refused do.
func (s *Channels[L]) Confirmed(name string) (c *Channel[L], missed bool) {
	if c = s.channels[name]; c == nil {
		return nil, false
	}
	missed = c.ready
	c.ready = true
	c.told++
	return c, missed
}

// Told notes a message.
func (s *Channels[L]) Told(name string) *Channel[L] {
	c := s.channels[name]
	if c != nil {
		c.told++
	}
	return c
}

// Refused notes that Redis does not let us listen to the channel. The next listener asks Redis anew.
func (s *Channels[L]) Refused(name string) *Channel[L] {
	c := s.channels[name]
	if c != nil {
		delete(s.channels, name)
		c.refused = true
	}
	return c
}

// Find returns a channel that is wanted, or was lately; else nil.
func (s *Channels[L]) Find(name string) *Channel[L] { return s.channels[name] }

// Len is how many channels are subscribed, or about to be.
func (s *Channels[L]) Len() int { return len(s.channels) }

// Ready reports whether the subscription is confirmed.
func (c *Channel[L]) Ready() bool { return c.ready }

// SubscriptionMark is how much a channel had told when it was noted; the zero value: it was not subscribed.
type SubscriptionMark[L any] struct {
	channel *Channel[L]
	told    uint64
}

// Mark notes what the channel has told so far. nil is a channel that is not subscribed.
func (c *Channel[L]) Mark() SubscriptionMark[L] {
	if c == nil || !c.ready {
		return SubscriptionMark[L]{}
	}
	return SubscriptionMark[L]{c, c.told}
}

// Missed reports whether the channel has told something since the mark, or was not subscribed all the time. nil has
// told nothing since it was not subscribed.
func (m SubscriptionMark[L]) Missed(c *Channel[L]) bool {
	return m.channel != c || c != nil && m.told != c.told
}
