package stream

import "github.com/lockproxy/lockproxy/internal/resp"

// Redis (as of 2025) closes a connection that has not authenticated as soon as its replies do not fit into the buffer
// that it has for them: 16 KiB, and after some seconds of little use 1 KiB. On a shared lane that would cost every
// client without credentials its connection because of one of them, or because many come at once. So such a lane has
// few requests outstanding. Redis also closes it if a command in array form has more than ten arguments, or one of more
// than 16 KiB. So such a command is sent as a line, which Redis does not limit in this way.

// maxMeek bounds the requests that are outstanding on a lane without credentials: a refusal has less than 340 bytes.
const maxMeek = 3

// MakeMeek says that Redis refuses the stream's requests for want of credentials. It is called before the stream is
// opened.
func (s *Stream) MakeMeek(on bool) { s.meek.Store(on) }

// takeMeek takes the requests that may be outstanding; nil: none for now, and relent wakes the writer.
func (s *Stream) takeMeek(spare []byte) []byte {
	s.join() // requests that came before the stream was meek
	space := maxMeek - int(s.sent-s.settled.Load())
	spans, size := 0, 0
	for spans < len(s.queue) && (space >= s.queue[spans].n || space == maxMeek) {
		space -= s.queue[spans].n
		size += s.queue[spans].size
		spans++
	}
	if spans == 0 {
		return nil
	}
	s.last = batch{spans: spans, before: s.sent}
	for _, sp := range s.queue[:spans] {
		s.sent += uint64(sp.n)
	}
	b := spare[:0]
	for i := range s.queue[:spans] {
		sp := &s.queue[i]
		before := len(b)
		b, s.out = appendMeek(b, s.out[:sp.size]), s.out[sp.size:]
		sp.size = len(b) - before // it may wait for the next connection
	}
	s.taken += int64(size)
	s.flight = append(s.flight, s.queue[:spans]...)
	clear(s.queue[:spans])
	s.queue = s.queue[spans:]
	return b
}

// appendMeek appends commands in a form for which Redis does not close the connection.
func appendMeek(dst, commands []byte) []byte {
	for len(commands) > 0 {
		var one resp.Scanner
		n, whole, err := one.Scan(commands)
		if !whole || err != nil { // a line already
			return append(dst, commands...)
		}
		args := resp.Split(commands[:n], nil)
		before := len(dst)
		switch {
		case !resp.Exceeds(args):
			dst = append(dst, commands[:n]...)
		default:
			if dst = resp.AppendInline(dst, args...); len(dst)-before >= maxLine {
				dst = append(dst[:before], refusedAnyhow...)
			}
		}
		commands = commands[n:]
	}
	return dst
}

// maxLine is the length of a line that Redis does not take any more.
const maxLine = 64 << 10

// refusedAnyhow stands for a command that cannot be sent: a client that has not authenticated is told so, and nothing
// runs if Redis has changed its mind meanwhile.
var refusedAnyhow = resp.AppendCommand(nil, "EVALSHA", "0000000000000000000000000000000000000000", "0")
