package session

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/meter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
)

// A large command need not be held whole. If its name is known, and it only carries data, the session takes a pin and sends the
// bytes as they come. The lane stays free for other sessions meanwhile.
const (
	// streamFrom is the announced size from which a command is streamed. Smaller commands are cheaper on the lane.
	streamFrom = 4 << 20

	// streamBacklog is the number of its bytes that may wait for Redis. Beyond it the client is not read.
	streamBacklog = 1 << 20

	// streamLeast is the number of its bytes that must come within each Limits.LargeCommand. A client that announces a large command
	// and then sends little of it loses its pin.
	streamLeast = 64 << 10
)

// progress measures a large command.
type progress struct {
	timer   *time.Timer
	bytes   int  // received
	checked int  // received at the last check
	excused bool // the client was not read all the time since then
}

// stream sends the start of a command that is not whole yet, if the command is large and may be streamed. It returns the number of
// bytes of buf that it has consumed.
func (i *input) stream(table *command.Table, buf []byte) int {
	s := i.s
	if i.guard.Need() < streamFrom && i.guard.Checked() < streamFrom && !i.streaming || s.wait != waitNone || s.ended {
		return 0
	}
	n := i.guard.Checked()
	if !i.streaming && !i.beginStream(table) {
		return 0
	}
	if s.pin != nil && s.pin.conn.Append(buf[:n], nil, 0, 0) != nil {
		s.end()
	}
	i.guard.Discard(n)
	i.large.bytes += n
	return n
}

// beginStream takes a pin for a large command. false: the command must be held whole, or the session waits.
func (i *input) beginStream(table *command.Table) bool {
	s := i.s
	name, _, open := i.guard.Open()
	if !open || i.unpinned {
		return false
	}
	row := table.Lookup(name)
	if s.Clustered() || row.Policy != command.Shared || s.pin != nil && s.pin.mode != readsReplies {
		return false
	}
	s.hasty = true // it runs even if its client has ended its side behind it
	if s.pin == nil && (!s.awaitQuiet() || !s.takePin(row.Name+" (large)", row.Policy)) {
		return false
	}
	s.muted = s.reply != replyOn
	i.streaming = true
	i.large = progress{}
	i.large.timer = time.AfterFunc(s.proxy.Limits().LargeCommand, i.checkStream)
	s.cmd = row.Title
	s.pin.fresh = false
	s.pin.Queued++
	return true
}

// endStream sends the last part of a large command. If its pin was lost before any byte reached Redis, the command is refused.
func (i *input) endStream(rest []byte) {
	s := i.s
	i.streaming = false
	i.large.timer.Stop()
	if s.reply == replySkip {
		s.reply = replyOn
	}
	if s.pin == nil {
		s.answer(shared.NoUpstream)
		return
	}
	s.proxy.Counters.Traffic.Add(s.ID, meter.ClassPinned, 1, i.large.bytes+len(rest))
	s.forward(rest, s.handler(), 1)
}

// checkStream ends a client whose large command comes too slowly.
func (i *input) checkStream() {
	s := i.s
	s.mu.Lock()
	defer s.exit()
	if !i.streaming || s.ended {
		return
	}
	l := &i.large
	if l.bytes-l.checked < streamLeast && !l.excused && !i.paused {
		s.proxy.SlowCommand(s.Addr, l.bytes)
		s.end()
		return
	}
	l.checked, l.excused = l.bytes, false
	l.timer.Reset(s.proxy.Limits().LargeCommand)
}
