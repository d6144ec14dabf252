package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// observer looks at Redis itself while the workload runs: at the time to live of the locks, which must have one at
// every instant, and at the fair queues, whose order is the order of asking.
type observer struct {
	at   atomic.Pointer[sight] // nil: there is no server that knows
	keys []string
	end  context.CancelFunc
	done sync.WaitGroup

	// Owned by watch until done.
	looks   int
	eternal []string                   // keys seen without a TTL
	held    map[string][]span          // by key: the times between two looks that both saw the lock held
	seen    map[string]int64           // by key: when the latest look saw the lock held; 0: it was free
	queued  map[string]map[string]span // by key: fair waiters, and when they were first and last seen in the queue
	longest map[string]int             // by key: longest queue
}

// span is an interval of time.
type span struct{ from, to int64 }

// sight is the servers that are asked, each for its keys.
type sight struct{ keys map[*redis.Client][]string }

func queueOf(key string) string     { return "redisson_lock_queue:{" + key + "}" }
func deadlinesOf(key string) string { return "redisson_lock_timeout:{" + key + "}" }

// namesOf are the lock and what its permits are kept in. Each must have a time to live.
func namesOf(key string) []string {
	return []string{key, "{" + key + "}:timeout", "{" + key + "}:permits"}
}

func observe(at *sight, keys []string) *observer {
	ctx, cancel := context.WithCancel(context.Background())
	o := &observer{
		keys: keys, end: cancel,
		held: make(map[string][]span), seen: make(map[string]int64),
		queued: make(map[string]map[string]span), longest: make(map[string]int),
	}
	o.at.Store(at)
	for _, key := range keys {
		o.queued[key] = make(map[string]span)
	}
	o.done.Go(func() { o.watch(ctx) })
	return o
}

func (o *observer) stop() {
	o.end()
	o.done.Wait()
}

func (o *observer) watch(ctx context.Context) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			o.look(ctx)
		}
	}
}

// look ignores errors: Redis may be down or stopped.
func (o *observer) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	at := o.at.Load()
	if at == nil {
		return
	}
	for client, keys := range at.keys {
		o.ask(ctx, at, client, keys)
	}
	o.looks++
}

// ask looks at the keys of one server. What it says does not count if the server was not to be asked any more.
func (o *observer) ask(ctx context.Context, at *sight, client *redis.Client, keys []string) {
	ttls := make([][]*redis.Cmd, len(keys))
	queues := make([]*redis.StringSliceCmd, len(keys))
	pipe := client.Pipeline()
	for i, key := range keys {
		for _, name := range namesOf(key) {
			ttls[i] = append(ttls[i], pipe.Do(ctx, "PTTL", name))
		}
		queues[i] = pipe.LRange(ctx, queueOf(key), 0, -1)
	}
	var refused redis.Error // for a key whose slot is being moved
	if _, err := pipe.Exec(ctx); err != nil && !errors.As(err, &refused) || o.at.Load() != at {
		return
	}
	for i, key := range keys {
		for n, name := range namesOf(key) {
			pttl, err := ttls[i][n].Int64()
			if err == nil && pttl == -1 && len(o.eternal) < 5 {
				o.eternal = append(o.eternal, fmt.Sprintf("%s at %.3f", name, seconds(mono())))
			}
			if err == nil && name == key {
				o.noteHeld(key, pttl != -2, mono())
			}
		}
		o.noteQueue(key, queues[i].Val())
	}
}

// noteHeld says nothing of the time between two looks that are far apart: a server was away.
func (o *observer) noteHeld(key string, held bool, now int64) {
	const near = 250 * time.Millisecond
	before := o.seen[key]
	if o.seen[key] = 0; !held {
		return
	}
	o.seen[key] = now
	if before == 0 || now-before > int64(near) {
		return
	}
	if spans := o.held[key]; len(spans) > 0 && spans[len(spans)-1].to == before {
		spans[len(spans)-1].to = now
		return
	}
	o.held[key] = append(o.held[key], span{before, now})
}

// places are the places in a lock's queue that were seen in that time.
func (o *observer) places(key string, from, to int64) (lines []logLine) {
	for owner, seen := range o.queued[key] {
		if seen.from <= to && seen.to >= from {
			lines = append(lines, logLine{seen.from, fmt.Sprintf("%s in the queue of %s [%.3f, %.3f]", owner, key, seconds(seen.from), seconds(seen.to))})
		}
	}
	return lines
}

func (o *observer) noteQueue(key string, owners []string) {
	o.longest[key] = max(o.longest[key], len(owners))
	for _, owner := range owners {
		seen, again := o.queued[key][owner]
		if seen.to = mono(); !again {
			seen.from = seen.to
		}
		o.queued[key][owner] = seen
	}
}
