package redislink

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

const (
	// Channels per command, so that one command stays small.
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
// run is its only goroutine. Each command waits for its confirmation before the next one is sent. So a confirmation
// that arrives belongs to the latest SUBSCRIBE of its channel.
type subscriber struct {
	// Immutable after init and Listen.
	client   *Client
	log      *zap.Logger
	listener Listener
	sharded  func() bool                            // Options.Sharded
	moved    func(channel string, why Refusal) bool // Options.Moved
	wake     chan struct{}                          // size 1, never closed: there is something to do

	mu     sync.Mutex          // guards the fields below
	wanted map[string]struct{} // channels
	todo   []string            // channels to be subscribed, or unsubscribed if they are not wanted
}

func (s *subscriber) init(c *Client, opts Options) {
	s.client, s.log, s.sharded, s.moved = c, opts.Logger, opts.Sharded, opts.Moved
	s.wake = make(chan struct{}, 1)
	s.wanted = make(map[string]struct{})
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
	s.todo = append(s.todo, channel)
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
		if !s.needed() {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		confirmed := s.serve(ctx)
		if confirmed {
			pause = reconnectFirst
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, reconnectLast)
	}
}

func (s *subscriber) needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.wanted) > 0
}

// serve is the life of one connection. It reports whether anything was confirmed on it.
func (s *subscriber) serve(ctx context.Context) (confirmed bool) {
	client, err := s.client.get(ctx)
	if err != nil {
		s.log.Debug("subscriptions wait for redis", zap.Error(err))
		return false
	}
	conn, _ := client.Dedicate()
	defer conn.Close()
	link := link{conn, s.sharded != nil && s.sharded()}
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: s.message, OnSubscription: s.subscription})
	s.mu.Lock()
	s.todo = s.todo[:0]
	for channel := range s.wanted {
		s.todo = append(s.todo, channel)
	}
	s.mu.Unlock()
	for {
		if err := s.update(ctx, link); err != nil {
			s.log.Debug("subscriptions lost", zap.Error(err))
			return confirmed
		}
		confirmed = true
		select {
		case <-s.wake:
		case err := <-lost:
			s.log.Debug("subscriptions lost", zap.Error(err))
			return confirmed
		case <-ctx.Done():
			return confirmed
		}
	}
}

// link is one connection for subscriptions.
type link struct {
	rueidis.DedicatedClient
	sharded bool
}

// each sends the commands for some channels: one for all, or one for each channel of a slot. It returns Redis's
// refusals. The error is the first one that is not Redis's, or the refusal of a Redis that refuses everything for a
// while.
func (l link) each(ctx context.Context, channels []string, on bool) (refused map[string]Refusal, err error) {
	var commands rueidis.Commands
	switch b := l.B(); {
	case l.sharded:
		for _, channel := range channels {
			switch all := channel == script.ForcedChannel; {
			case all && on:
				commands = append(commands, b.Subscribe().Channel(channel).Build())
			case all:
				commands = append(commands, b.Unsubscribe().Channel(channel).Build())
			case on:
				commands = append(commands, b.Ssubscribe().Channel(channel).Build())
			default:
				commands = append(commands, b.Sunsubscribe().Channel(channel).Build())
			}
		}
	case on:
		commands = append(commands, b.Subscribe().Channel(channels...).Build())
	default:
		commands = append(commands, b.Unsubscribe().Channel(channels...).Build())
	}
	for i, answer := range l.DoMulti(ctx, commands...) {
		err := answer.Error()
		refusal, ok := rueidis.IsRedisErr(err)
		switch {
		case ok && isBusy(refusal):
			return nil, err
		case ok:
			if refused == nil {
				refused = map[string]Refusal{}
			}
			refused[channels[i]] = Refusal(refusalWords(refusal))
		case err != nil:
			return nil, err
		}
	}
	return refused, nil
}

// isBusy reports whether Redis refuses everything at present: a script runs for long, or a dataset is being loaded. The
// subscriptions begin anew when it answers again.
func isBusy(refusal *rueidis.RedisError) bool {
	return strings.HasPrefix(refusal.Error(), "BUSY ") || strings.HasPrefix(refusal.Error(), "LOADING ")
}

// update works off todo. The confirmations arrive at subscription.
func (s *subscriber) update(ctx context.Context, conn link) error {
	for {
		on, off := s.next()
		if len(on)+len(off) == 0 {
			return nil
		}
		if len(off) > 0 {
			if refused, err := conn.each(ctx, off, false); err != nil {
				return err
			} else if len(refused) > 0 && !conn.sharded { // else the slot has moved, and the subscription with it
				return refused[off[0]]
			}
		}
		if err := s.subscribe(ctx, conn, on); err != nil {
			return err
		}
	}
}

// next takes a batch off todo: the channels to subscribe and those to unsubscribe, each once.
func (s *subscriber) next() (on, off []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.todo), subscribeBatch)
	batch := slices.Compact(slices.Sorted(slices.Values(s.todo[:n])))
	s.todo = slices.Delete(s.todo, 0, n) // what it moves off keeps no name alive
	for _, channel := range batch {
		if _, wanted := s.wanted[channel]; wanted {
			on = append(on, channel)
		} else {
			off = append(off, channel)
		}
	}
	return on, off
}

func (s *subscriber) subscribe(ctx context.Context, conn link, batch []string) error {
	if len(batch) == 0 {
		return nil
	}
	refused, err := conn.each(ctx, batch, true)
	if err != nil {
		return err
	}
	if len(refused) > 0 && len(batch) > 1 && !conn.sharded {
		// One channel may be refused for another's sake.
		for i := range batch {
			if err := s.subscribe(ctx, conn, batch[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	for channel, why := range refused {
		s.refuse(channel, why)
	}
	return nil
}

// refuse is for a channel that Redis refuses. It is reported, unless another server has it.
func (s *subscriber) refuse(channel string, why Refusal) {
	if s.moved != nil && s.moved(channel, why) {
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
		if wanted && s.moved != nil {
			s.moved(e.Channel, "")
		}
	}
}
