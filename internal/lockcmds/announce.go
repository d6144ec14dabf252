package lockcmds

import (
	"sync"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// announcements are the losses that have not been told yet. One job at a time tells them, announceBatch in a go, in their order.
type announcements struct {
	mu   sync.Mutex
	list []*loss
	busy bool // a job tells them
}

// announceBatch bounds what is published in one go.
const announceBatch = 128

// tell announces a loss: to the log and metrics, to the holders by a push, to everybody by a channel. It is called without locks, by
// the watchdog's scheduler too, and leaves the work to a job.
func (e *Engine) tell(l *loss) {
	if l == nil {
		return
	}
	if f := e.opts.Events.Lost; f != nil {
		f(string(l.reason))
	}
	a := &e.losing
	a.mu.Lock()
	a.list = append(a.list, l)
	start := !a.busy
	a.busy = true
	a.mu.Unlock()
	if start {
		e.jobs.Submit(jobs.Loss, e.announce)
	}
}

// announce is the job. Holders are told at once; what is published needs Redis, which may be why the leases were lost.
func (e *Engine) announce() {
	batch := e.losing.take()
	if len(batch) == 0 {
		return
	}
	for _, l := range batch {
		e.log.Warn("lease lost", zap.String("key", l.key), zap.Int64("fence", l.fence), zap.String("reason", string(l.reason)))
		push := appendLost(nil, l)
		for _, c := range l.to {
			e.do(c.s, func() { c.s.Push(push) })
		}
	}
	e.jobs.Submit(jobs.CleanUp, func() { e.publishLosses(batch) })
	e.jobs.Submit(jobs.Loss, e.announce)
}

// take returns the losses to be told next; none: the job is over.
func (a *announcements) take() []*loss {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.list), announceBatch)
	batch := a.list[:n:n]
	if a.list = a.list[n:]; len(a.list) == 0 {
		a.list = nil // a burst must not keep its memory
	}
	a.busy = n > 0
	return batch
}

// publishLosses tells everybody else.
func (e *Engine) publishLosses(batch []*loss) {
	messages := make(map[redislink.Node][]redislink.Message, 1)
	for _, l := range batch {
		node := e.own.Node(l.key)
		messages[node] = append(messages[node], redislink.Message{
			Channel: script.LostOf(l.key), Text: itoa(l.fence) + " " + string(l.reason),
		})
	}
	for node, some := range messages {
		if err := node.Publish(e.life, some); err != nil {
			e.log.Debug("losses not published", zap.Int("locks", len(some)), zap.Error(err))
		}
	}
}

// appendLost appends the push "lock-lost key fence reason".
func appendLost(dst []byte, l *loss) []byte {
	dst = resp.AppendPushHeader(dst, 4)
	dst = redcon.AppendBulkString(dst, "lock-lost")
	dst = redcon.AppendBulkString(dst, l.key)
	dst = redcon.AppendInt(dst, l.fence)
	return redcon.AppendBulkString(dst, string(l.reason))
}
