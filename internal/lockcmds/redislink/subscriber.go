package redislink

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

const (
	// Commands in one batch.
	subscribeBatch = 256
	// Pauses between attempts to connect grow from the first to the second, with jitter. The second is how late waiters
	// hear that Redis is back. While it is away the connections of all engines share their attempts, so more of them
	// cost little.
	reconnectFirst, reconnectLast = 20 * time.Millisecond, 200 * time.Millisecond
)

// subscriber keeps one connection to Redis subscribed to all wanted channels.
//
//	Subscribe, Unsubscribe ──► wanted, todo ──► run: SUBSCRIBE, UNSUBSCRIBE in batches ──► Redis
//	Listener ◄── reader of that connection ◄──────────────────────────────────────────────┘
//
// run is its only goroutine. Each batch waits for its confirmations before the next one is sent, and has a channel once.
// So a confirmation that arrives belongs to the latest SUBSCRIBE of its channel.
type subscriber struct {
	client   *Client       // immutable
	listener Listener      // immutable after Listen
	wake     chan struct{} // size 1, never closed: there is something to do

	mu     sync.Mutex          // guards the fields below
	wanted map[string]struct{} // channels
	serves bool                // there is a connection, or will be soon
	todo   []string            // channels to be subscribed, or unsubscribed if they are not wanted; if it serves
}

func (s *subscriber) init(c *Client) {
	s.client, s.wake, s.wanted = c, make(chan struct{}, 1), map[string]struct{}{}
}

// Subscribe implements Node.
func (c *Client) Subscribe(channel string) { c.subs.change(channel, true) }

// Unsubscribe implements Node.
func (c *Client) Unsubscribe(channel string) { c.subs.change(channel, false) }

func (s *subscriber) change(channel string, want bool) {
	s.mu.Lock()
	if want {
		s.wanted[channel] = struct{}{}
	} else {
		delete(s.wanted, channel)
	}
	if s.serves {
		s.todo = append(s.todo, channel)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run serves until ctx ends.
func (s *subscriber) run(ctx context.Context) {
	pause := reconnectFirst
	for ctx.Err() == nil {
		if !s.begin() {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		if s.serve(ctx) {
			pause = reconnectFirst
		}
		s.rest()
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, reconnectLast)
	}
}

// begin has all wanted channels subscribed. false: there are none.
func (s *subscriber) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo = slices.Collect(maps.Keys(s.wanted))
	s.serves = len(s.todo) > 0
	return s.serves
}

// rest ends begin: todo does not grow while Redis is away.
func (s *subscriber) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.todo, s.serves = nil, false
}

// serve is the life of one connection. It reports whether anything was confirmed on it.
func (s *subscriber) serve(ctx context.Context) (confirmed bool) {
	conn, _ := s.client.redis.Dedicate()
	defer conn.Close()
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: s.message, OnSubscription: s.subscription})
	for {
		err := s.update(ctx, conn)
		if err == nil {
			confirmed = true
			select {
			case <-s.wake:
				continue
			case err = <-lost:
			case <-ctx.Done():
				return confirmed
			}
		}
		s.client.opts.Logger.Debug("subscriptions lost", zap.Error(err))
		return confirmed
	}
}

// update works off todo. The confirmations arrive at subscription. The error is not Redis's, or that of a Redis that
// refuses everything for a while: the subscriptions begin anew when it answers again.
func (s *subscriber) update(ctx context.Context, conn rueidis.DedicatedClient) error {
	for batch := s.next(); len(batch) > 0; batch = s.next() {
		commands := make(rueidis.Commands, len(batch))
		for i, c := range batch {
			commands[i] = s.command(conn.B(), c)
		}
		for i, answer := range conn.DoMulti(ctx, commands...) {
			err := answer.Error()
			refusal, refused := rueidis.IsRedisErr(err)
			switch {
			case err != nil && !refused || refused && isBusy(refusal.Error()):
				return err
			case refused && batch[i].on: // else the slot has moved, and the subscription with it
				s.refuse(batch[i].channel, Refusal(refusal.Error()))
			}
		}
	}
	return nil
}

// change is a channel that is to be subscribed, or unsubscribed.
type change struct {
	channel string
	on      bool
}

// next takes a batch off todo, each channel once.
func (s *subscriber) next() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.todo), subscribeBatch)
	channels := slices.Compact(slices.Sorted(slices.Values(s.todo[:n])))
	s.todo = slices.Delete(s.todo, 0, n) // what it moves off keeps no name alive
	batch := make([]change, len(channels))
	for i, channel := range channels {
		_, wanted := s.wanted[channel]
		batch[i] = change{channel, wanted}
	}
	return batch
}

// command has one channel: Redis may refuse it while it confirms others.
func (s *subscriber) command(b rueidis.Builder, c change) rueidis.Completed {
	sharded := s.client.opts.Sharded != nil && s.client.opts.Sharded() && c.channel != script.ForcedChannel
	switch {
	case sharded && c.on:
		return b.Ssubscribe().Channel(c.channel).Build()
	case sharded:
		return b.Sunsubscribe().Channel(c.channel).Build()
	case c.on:
		return b.Subscribe().Channel(c.channel).Build()
	}
	return b.Unsubscribe().Channel(c.channel).Build()
}

// refuse is for a channel that Redis refuses. It is reported, unless another server has it.
func (s *subscriber) refuse(channel string, why Refusal) {
	if moved := s.client.opts.Moved; moved != nil && moved(channel, why) {
		return
	}
	s.mu.Lock()
	delete(s.wanted, channel)
	s.mu.Unlock()
	s.listener.Refused(channel, why)
}

func (s *subscriber) message(m rueidis.PubSubMessage) { s.listener.Published(m.Channel, m.Message) }

func (s *subscriber) subscription(e rueidis.PubSubSubscription) {
	switch e.Kind {
	case "subscribe", "ssubscribe":
		s.listener.Confirmed(e.Channel)
	case "sunsubscribe": // Redis says so unasked when the slot moves
		s.mu.Lock()
		_, wanted := s.wanted[e.Channel]
		s.mu.Unlock()
		if moved := s.client.opts.Moved; wanted && moved != nil {
			moved(e.Channel, "")
		}
	}
}
