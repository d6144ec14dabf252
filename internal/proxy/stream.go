package proxy

// A large command need not be held whole: once its name is known and it is one that only carries data, the session takes a
// pin and sends what has arrived, piece by piece. The lane stays free for others meanwhile.
const (
	// streamFrom is how large a command must announce itself to be streamed. Smaller ones are cheaper on the lane.
	streamFrom = 4 << 20

	// streamBacklog is how much of it may wait for Redis before the client is not read any more.
	streamBacklog = 1 << 20
)

// stream sends the start of a command that is not whole yet, if that is worth while and possible. It returns how many bytes
// of buf it has dealt with.
func (s *Session) stream(table *policyTable, buf []byte) int {
	if s.guard.Need() < streamFrom && s.guard.Checked() < streamFrom && !s.streaming || s.wait != nothing || s.ended {
		return 0
	}
	n := s.guard.Checked()
	if !s.streaming && !s.beginStream(table) {
		return 0
	}
	if s.pin != nil && s.pin.conn.Append(buf[:n], nil, 0) != nil {
		s.end()
	}
	s.guard.Discard(n)
	return n
}

// beginStream takes a pin for a large command. false: the command has to be held whole, or the session waits.
func (s *Session) beginStream(table *policyTable) bool {
	name, _, open := s.guard.Open()
	if !open {
		return false
	}
	row := table.lookup(name)
	if row.policy != shared || s.pin != nil && s.pin.mode != readsReplies {
		return false
	}
	if s.pin == nil && (!s.awaitQuiet() || s.noPin || !s.takePin(row.name+" (large)")) {
		return false
	}
	s.muted = s.reply != replyOn
	s.streaming = true
	s.pin.fresh = false
	s.pin.queued++
	return true
}

// endStream sends the last piece of a large command. If its pin was lost before anything reached Redis, the command has been
// read to its end for nothing.
func (s *Session) endStream(rest []byte) {
	s.streaming = false
	if s.reply == replySkip {
		s.reply = replyOn
	}
	if s.pin == nil {
		s.answer(noUpstream)
		return
	}
	s.forward(rest, s.receiver(), 1)
}
