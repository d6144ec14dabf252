package stream

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// errOutOfStep says that replies are missing, or came twice, or that one has swallowed others: bytes of Redis were
// damaged on their way. All further replies would go to the wrong clients, and the last ones would be awaited for ever.
var errOutOfStep = errors.New("upstream: replies are out of step")

// A probe is a PING with a word that no other reply has, so it tells whether replies still come in the order of the
// requests. It is its own receiver. Only the reader uses it.
type probe struct {
	s     *Stream
	word  []byte // with the line end behind it
	tail  []byte // the last bytes that came, fewer than word has
	reply []byte // to the PING, so far
	wrong bool   // the reply in its turn is another one
}

// Probe asks Redis for a word, unless an earlier question is on its way. If the word does not come in its turn, the
// connection ends. It is called when requests have been outstanding for a while: else the numbers of requests and
// replies show by themselves that the connection is in step.
func (s *Stream) Probe() {
	word := strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
	p := &probe{s: s, word: append([]byte(word), "\r\n"...)}
	if !s.probe.CompareAndSwap(nil, p) {
		return
	}
	if s.Append(resp.AppendCommand(nil, "PING", word), p, 0, 1) != nil {
		s.probe.Store(nil)
	}
}

// outOfStep takes bytes that have been handed on. It reports whether they show that replies do not come in their turns.
func (p *probe) outOfStep(b []byte) bool {
	if p.wrong {
		return true
	}
	if p.s.probe.Load() != p { // answered
		return false
	}
	seam := append(p.tail, b[:min(len(b), len(p.word))]...)
	if bytes.Contains(seam, p.word) || bytes.Contains(b, p.word) {
		return true
	}
	if len(b) > len(p.word) {
		seam = b
	}
	p.tail = bytes.Clone(seam[max(0, len(seam)-len(p.word)+1):])
	return false
}

// Replies implements Receiver.
func (p *probe) Replies(_ uint64, b []byte, n int, _ bool) {
	p.reply = append(p.reply, b[:min(len(b), 4*len(p.word))]...)
	if n == 0 {
		return
	}
	p.s.probe.Store(nil)
	p.wrong = p.reply[0] != '-' && !bytes.HasSuffix(p.reply, p.word) // Redis may refuse a PING
}

// Lost implements Receiver.
func (p *probe) Lost(uint64, int, bool) { p.s.probe.Store(nil) }

// Keeps implements Receiver.
func (p *probe) Keeps(bool) bool { return false }

// Flush implements Receiver.
func (p *probe) Flush() {}

var _ Receiver = (*probe)(nil)
