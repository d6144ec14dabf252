package lockcmds

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file tells of lost leases: the holders by a push, all others on a Redis channel, operators by the log.

// lossReport is the report of one lost hold.
type lossReport struct {
	Key, Owner string
	Fence      int64
	Reason     string
	Expired    bool                // a lease of fixed length, which ended by itself: nothing is wrong
	Published  bool                // the script that ended it has told the channel
	Held       time.Duration       // since the command was sent that acquired the lock
	Client     contract.ClientInfo // the first of the clients that held it
	// Push sends a push to the sessions that held it. Requires no locks.
	Push func(push []byte)
}

// announceOptions configure an announcer. All fields are required.
type announceOptions struct {
	Jobs   jobs.Runner
	Redis  redislink.Topology
	Life   context.Context // losses that are not published when it ends never are
	Logger *zap.Logger
}

// announcer tells of losses in their order. One job at a time tells them, mostMessages in a go.
type announcer struct {
	opts    announceOptions
	entries *logging.Repeats

	mu   sync.Mutex
	list []lossReport // not told yet
	busy bool         // a job tells them
}

// Losses of one reason that are logged one by one in a period. The others of the period have one summary.
const (
	entriesMost   = 100
	entriesPeriod = 10 * time.Second
)

// mostMessages is the most messages that are published in one round trip.
const mostMessages = 128

// newAnnouncer returns an announcer without losses.
func newAnnouncer(opts announceOptions) *announcer {
	return &announcer{opts: opts, entries: logging.NewRepeats(opts.Logger, entriesMost, entriesPeriod)}
}

// Close writes the summaries of losses that are due.
func (a *announcer) Close() { a.entries.Flush() }

// Tell announces a loss. It leaves the work to a job. Requires no session lock.
func (a *announcer) Tell(l lossReport) {
	a.mu.Lock()
	a.list = append(a.list, l)
	start := !a.busy
	a.busy = true
	a.mu.Unlock()
	if start {
		a.opts.Jobs.Submit(jobs.Loss, a.announce)
	}
}

// announce is the job. Holders are told at once. To publish needs Redis, whose absence may be why the leases were lost.
func (a *announcer) announce() {
	some := a.take()
	if len(some) == 0 {
		return
	}
	for i := range some {
		l := &some[i]
		a.log(l)
		l.Push(appendPush(nil, l))
	}
	a.opts.Jobs.Submit(jobs.CleanUp, func() { a.publish(some) })
	a.opts.Jobs.Submit(jobs.Loss, a.announce)
}

// log writes the entry of a loss. A mass of losses is summarised.
func (a *announcer) log(l *lossReport) {
	level, message := zap.WarnLevel, "lease lost"
	if l.Expired {
		level, message = zap.DebugLevel, "fixed lease expired"
	}
	if !a.opts.Logger.Core().Enabled(level) {
		return
	}
	a.entries.Write(level, message, l.Reason, logging.Text("key", l.Key), logging.Text("owner", l.Owner), zap.Int64("fence", l.Fence),
		zap.String("reason", l.Reason), zap.String("client", l.Client.Addr), logging.Text("client_name", l.Client.Name), logging.Seconds("held", l.Held))
}

// take returns the losses to be told next; none: the job is over.
func (a *announcer) take() []lossReport {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.list), mostMessages)
	some := a.list[:n:n]
	if a.list = a.list[n:]; len(a.list) == 0 {
		a.list = nil // a burst must not keep its memory
	}
	a.busy = n > 0
	return some
}

// publish tells the channel.
func (a *announcer) publish(losses []lossReport) {
	messages := make(map[redislink.Node][]redislink.Message, 1)
	var nodes []redislink.Node // in the order of the losses
	for _, l := range losses {
		if l.Published {
			continue
		}
		node := a.opts.Redis.Node(l.Key)
		if messages[node] == nil {
			nodes = append(nodes, node)
		}
		messages[node] = append(messages[node], redislink.Message{
			Channel: script.Lost(l.Key), Text: strconv.FormatInt(l.Fence, 10) + " " + l.Reason,
		})
	}
	for _, node := range nodes {
		some := messages[node]
		if err := node.Publish(a.opts.Life, some); err != nil {
			a.opts.Logger.Debug("losses not published", zap.Int("locks", len(some)), zap.Error(err))
		}
	}
}

// appendPush appends the push "lock-lost key fence reason".
func appendPush(dst []byte, l *lossReport) []byte {
	dst = resp.AppendPushHeader(dst, 4)
	dst = redcon.AppendBulkString(dst, "lock-lost")
	dst = redcon.AppendBulkString(dst, l.Key)
	dst = redcon.AppendInt(dst, l.Fence)
	return redcon.AppendBulkString(dst, l.Reason)
}
