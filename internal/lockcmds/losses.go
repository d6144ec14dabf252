package lockcmds

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// This file ends holds that are lost, and tells of them: the holders by a push, all others on a Redis channel,
// operators by the log.

// reasonForced is the reason of a loss by FORCEUNLOCK. The watchdog has the other reasons.
const reasonForced watchdog.Reason = "forced"

// LossReasons lists the reasons that Events.Lost is called with.
func LossReasons() []string {
	return []string{
		string(watchdog.ReasonGone), string(watchdog.ReasonDeadline), string(watchdog.ReasonExpired),
		string(watchdog.ReasonMaxHold), string(reasonForced),
	}
}

// onLost is the watchdog's verdict about a lease: its hold ends, and then waiters ask. It is called at most once per
// lease. Requires no locks.
func (e *keeper) onLost(of any, reason watchdog.Reason) {
	defer e.failstop.Guard()
	var rest []rollback
	e.step(func(t *table.Table) {
		h := of.(*table.Hold)
		if !t.Knows(h) || !h.Lease.Over() {
			return // the hold has ended already, or its lease was set anew
		}
		if reason != watchdog.ReasonGone {
			// Our clock, not Redis, says that the lease has ended. The sessions are told, so they cannot use what Redis
			// may have left of their holds.
			rest = e.staleLocked(h)
		}
		t.Lost(h, string(reason), false, nil)
		t.Wake(h.Lock)
	})
	for _, r := range rest {
		e.calls.RollBack(r)
	}
}

// staleLocked returns the rollbacks of a hold that the sessions here have lost. Each is tried for as long as Redis may
// have a part of the hold. Requires keeper.mu.
func (e *keeper) staleLocked(h *table.Hold) []rollback {
	all := make([]rollback, 0, len(h.Parts()))
	for _, o := range h.Parts() {
		r := e.rollback(h, o)
		r.Limit = max(h.TTL, e.opts.Lease)
		if memory := o.Session.Memory; memory != nil { // else a client could have any number of names wait here
			memory.Add(int64(len(h.Lock)))
			r.Done = func() { memory.Add(-int64(len(h.Lock))) }
		}
		all = append(all, r)
	}
	return all
}

// lossReport is the report of one lost hold.
type lossReport struct {
	*table.Loss
	held time.Duration // since the command was sent that acquired the lock
}

// announcer tells of losses in their order. One job at a time tells them, mostMessages in a go.
type announcer struct {
	jobs     jobs.Runner
	client   scriptRunner
	life     context.Context // losses that are not published when it ends never are
	failstop FailStop
	logger   *zap.Logger
	entries  *logging.Repeats // of logger

	mu   sync.Mutex
	list []lossReport // not told yet
	busy bool         // a job tells them
}

// mostMessages is the most messages that are published in one round trip.
const mostMessages = 128

// Tell announces a loss to the holders by a push, to subscribers by a channel, and to the log. It leaves the work to a
// job. Requires no session lock.
func (a *announcer) Tell(l lossReport) {
	a.mu.Lock()
	a.list = append(a.list, l)
	start := !a.busy
	a.busy = true
	a.mu.Unlock()
	if start {
		a.jobs.Submit(jobs.Renewal, a.announce)
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
		push := appendPush(nil, l.Loss)
		for _, c := range l.To {
			s := c.Tag.(*clientSession).Conn
			a.failstop.Do(s, func() { s.Push(push) })
		}
	}
	a.jobs.Submit(jobs.CleanUp, func() { a.publish(some) })
	a.jobs.Submit(jobs.Renewal, a.announce)
}

// log writes the entry of a loss. A mass of losses is summarised.
func (a *announcer) log(l *lossReport) {
	level, message := zap.WarnLevel, "lease lost"
	if l.Reason == string(watchdog.ReasonExpired) { // a lease of fixed length has ended by itself: nothing is wrong
		level, message = zap.DebugLevel, "fixed lease expired"
	}
	if !a.logger.Core().Enabled(level) {
		return
	}
	a.entries.Write(level, message, l.Reason,
		logging.Text("key", l.Key.Lock), logging.Text("owner", l.Key.Owner), zap.Int64("fence", l.Fence),
		zap.String("reason", l.Reason), zap.String("client", l.Client.Addr),
		logging.Text("client_name", l.Client.Name), logging.Seconds("held", l.held))
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
	calls := make(map[redislink.Node]script.Tell, 1)
	var nodes []redislink.Node // in the order of the losses
	for _, l := range losses {
		if l.Reason == string(reasonForced) { // the script that ended it has told the channel
			continue
		}
		node := a.client.Node(l.Key.Lock)
		tell, ok := calls[node]
		if !ok {
			nodes = append(nodes, node)
		}
		tell.Key, tell.Messages = l.Key.Lock, append(tell.Messages, script.Message{
			Channel: script.Lost(l.Key.Lock), Text: strconv.FormatInt(l.Fence, 10) + " " + l.Reason,
		})
		calls[node] = tell
	}
	for _, node := range nodes {
		tell := calls[node]
		if _, err := runFor(a.life, a.client, tell.Call(), script.DecodeDone); err != nil {
			a.logger.Debug("losses not published", zap.Int("locks", len(tell.Messages)), zap.Error(err))
		}
	}
}

// appendPush appends the push "lock-lost key fence reason".
func appendPush(dst []byte, l *table.Loss) []byte {
	dst = resp.AppendPushHeader(dst, 4)
	dst = redcon.AppendBulkString(dst, "lock-lost")
	dst = redcon.AppendBulkString(dst, l.Key.Lock)
	dst = redcon.AppendInt(dst, l.Fence)
	return redcon.AppendBulkString(dst, l.Reason)
}
