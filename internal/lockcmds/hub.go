package lockcmds

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"
)

const (
	// linger is how long a channel nobody wants stays subscribed: a contended lock would else subscribe and
	// unsubscribe with every hand-over.
	linger = 2 * time.Second
	// Channels per command, so that one command stays small.
	subscribeBatch = 256
	// Pauses between attempts to connect grow from the first to the second, with jitter. The second is how late waiters hear that
	// Redis is back. While it is away the connections of all engines share their attempts, so more of them cost little.
	reconnectFirst, reconnectLast = 20 * time.Millisecond, 200 * time.Millisecond
)

// topic is one wanted channel. All who listen to it share it by reference count, whatever lock they wait for: "a" and "{a}" have
// one base channel, and that of "{a}:j" is the channel of the owner j who waits for "a".
type topic struct {
	channel string // immutable

	// Guarded by hub.mu.
	refs    int
	idle    time.Time // since when refs is 0
	refused bool      // by Redis; no longer in hub.topics

	// Guarded by Engine.mu.
	rooms   map[*room]struct{}   // whose base channel it is
	waiters map[*waiter]struct{} // who are woken by name
	ready   bool                 // it has been confirmed at least once; every later confirmation is a wake-up, so a gap loses nothing
	news    uint64               // confirmations and messages so far
}

// hub keeps one connection to Redis subscribed to all wanted channels.
//
//	join, leave ──► wanted ──► Run: SUBSCRIBE, UNSUBSCRIBE in batches ──► Redis
//	onReady, onMessage, onRefused ◄── reader of that connection ◄──────────┘
//
// Run is the only goroutine of its own. The callbacks run on it and on the client's reader and must not block.
type hub struct {
	// Immutable.
	own       *own
	log       *zap.Logger
	onReady   func(*topic)             // the subscription is confirmed, also again after a reconnect
	onMessage func(*topic)             // something was published
	onRefused func(*topic, redisError) // Redis refuses the subscription
	wake      chan struct{}            // size 1, never closed: there is something to do

	mu     sync.Mutex        // guards the fields below and those of topics
	topics map[string]*topic // by channel
	todo   []*topic          // to be subscribed
	idlers int               // topics with refs 0
}

// join returns the topic of a channel and counts one more reference.
func (h *hub) join(channel string) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[channel]
	if t == nil {
		t = &topic{channel: channel, rooms: make(map[*room]struct{}), waiters: make(map[*waiter]struct{})}
		h.topics[channel] = t
		h.todo = append(h.todo, t)
		h.pokeLocked()
	} else if t.refs == 0 {
		h.idlers--
	}
	t.refs++
	return t
}

// find returns the topic of a channel if there is one, without a reference.
func (h *hub) find(channel string) *topic {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.topics[channel]
}

// leave gives one reference back.
func (h *hub) leave(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.refs--
	if t.refs == 0 && !t.refused {
		t.idle = time.Now()
		if h.idlers++; h.idlers == 1 {
			h.pokeLocked()
		}
	}
}

func (h *hub) pokeLocked() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run serves until ctx ends.
func (h *hub) run(ctx context.Context) {
	pause := reconnectFirst
	for ctx.Err() == nil {
		if !h.wanted() {
			select {
			case <-h.wake:
			case <-ctx.Done():
			}
			continue
		}
		confirmed := h.serve(ctx)
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

func (h *hub) wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics) > 0
}

// serve is the life of one connection. It reports whether anything was confirmed on it.
func (h *hub) serve(ctx context.Context) (confirmed bool) {
	client, err := h.own.get()
	if err != nil {
		h.log.Debug("subscriptions wait for redis", zap.Error(err))
		return false
	}
	conn, _ := client.Dedicate()
	defer conn.Close()
	lost := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: h.message, OnSubscription: h.subscription})
	h.mu.Lock()
	h.todo = h.todo[:0]
	for _, t := range h.topics {
		h.todo = append(h.todo, t)
	}
	h.mu.Unlock()
	tidy := time.NewTicker(linger)
	defer tidy.Stop()
	for {
		if err := h.subscribe(ctx, conn); err != nil {
			h.log.Debug("subscriptions lost", zap.Error(err))
			return confirmed
		}
		confirmed = true
		select {
		case <-h.wake:
		case <-tidy.C:
			if err := h.unsubscribe(ctx, conn); err != nil {
				return confirmed
			}
		case err := <-lost:
			h.log.Debug("subscriptions lost", zap.Error(err))
			return confirmed
		case <-ctx.Done():
			return confirmed
		}
	}
}

// subscribe works off todo. The confirmations arrive at subscription.
func (h *hub) subscribe(ctx context.Context, conn rueidis.DedicatedClient) error {
	for {
		h.mu.Lock()
		n := min(len(h.todo), subscribeBatch)
		batch := make([]*topic, n)
		copy(batch, h.todo)
		h.todo = append(h.todo[:0], h.todo[n:]...)
		h.mu.Unlock()
		if n == 0 {
			return nil
		}
		err := h.send(ctx, conn, batch)
		if _, refused := rueidis.IsRedisErr(err); refused && n > 1 {
			// One channel may be refused for another's sake.
			for i := range batch {
				if err = h.send(ctx, conn, batch[i:i+1]); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
}

// send subscribes a batch. A single topic that Redis refuses is reported and is no error.
func (h *hub) send(ctx context.Context, conn rueidis.DedicatedClient, batch []*topic) error {
	channels := make([]string, len(batch))
	for i, t := range batch {
		channels[i] = t.channel
	}
	err := conn.Do(ctx, conn.B().Subscribe().Channel(channels...).Build()).Error()
	if refusal, ok := rueidis.IsRedisErr(err); ok && len(batch) == 1 {
		h.mu.Lock()
		delete(h.topics, batch[0].channel)
		batch[0].refused = true
		if batch[0].refs == 0 {
			h.idlers--
		}
		h.mu.Unlock()
		h.onRefused(batch[0], redisError(refusal.Error()))
		return nil
	}
	return err
}

// unsubscribe gives up channels that nobody has wanted for a while.
func (h *hub) unsubscribe(ctx context.Context, conn rueidis.DedicatedClient) error {
	var channels []string
	h.mu.Lock()
	if h.idlers > 0 {
		for channel, t := range h.topics {
			if t.refs == 0 && time.Since(t.idle) >= linger {
				channels = append(channels, channel)
				delete(h.topics, channel)
				h.idlers--
			}
		}
	}
	h.mu.Unlock()
	for len(channels) > 0 {
		n := min(len(channels), subscribeBatch)
		if err := conn.Do(ctx, conn.B().Unsubscribe().Channel(channels[:n]...).Build()).Error(); err != nil {
			return err
		}
		channels = channels[n:]
	}
	return nil
}

func (h *hub) message(m rueidis.PubSubMessage) {
	if t := h.find(m.Channel); t != nil {
		h.onMessage(t)
	}
}

func (h *hub) subscription(s rueidis.PubSubSubscription) {
	if s.Kind != "subscribe" {
		return
	}
	if t := h.find(s.Channel); t != nil {
		h.onReady(t)
	}
}
