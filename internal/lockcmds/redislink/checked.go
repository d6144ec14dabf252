package redislink

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
)

// checked is a connection for the library, which trusts Redis: a reply that nothing has asked for, a negative count or
// a count beyond all memory makes it panic, in goroutines of its own. So its bytes are checked first. A frame is passed
// on when it is whole, well-formed and in place. The first other frame ends the connection: Read returns an error, and
// the library makes another connection.
//
//	Redis ──► frames: is it whole and well-formed? ──► pending: has it been asked for? ──► library
//	library ──► requests: which replies will come? ──► pending, Redis
//
// The memory of a frame grows with the bytes that have come, not with those that are announced.
type checked struct {
	net.Conn
	frames   frames   // owned by the reader
	requests requests // owned by the writer
	pending  pending
	broken   func(why error) // is told why the connection is given up
}

var errMalformed = errors.New("redis has sent bytes that cannot be understood")

// Read implements net.Conn. It returns bytes of whole frames only.
func (c *checked) Read(p []byte) (int, error) {
	f := &c.frames
	for f.passed == f.good {
		if f.err != nil {
			return 0, f.err
		}
		space := f.space()
		n, err := c.Conn.Read(space)
		if n == 0 && err != nil {
			return 0, err
		}
		f.buf = f.buf[:len(f.buf)+n]
		for f.err == nil {
			frame := f.next()
			if frame == nil {
				break
			}
			if f.err = c.pending.answered(frame); f.err == nil {
				f.good = f.at
			}
		}
		if f.err != nil {
			c.broken(f.err)
		}
	}
	n := copy(p, f.buf[f.passed:f.good])
	f.passed += n
	return n, nil
}

// Write implements net.Conn.
func (c *checked) Write(p []byte) (int, error) {
	c.requests.read(p, &c.pending)
	return c.Conn.Write(p)
}

// Limits of a frame. Frames are far smaller, but a channel has the name of its lock, and a message that a foreign
// client publishes may be as long as any string in Redis.
const (
	maxString   = 512 << 20
	maxFrame    = maxString + 64<<10
	maxLine     = 1 << 20
	maxElements = 1 << 20
	maxLevels   = 64
)

// frames are the bytes from Redis:
//
//	buf[:passed]      the library has them
//	buf[passed:good]  whole frames that are in place
//	buf[good:at]      whole elements of the frame that is coming in
//	buf[at:]          the element that is coming in
type frames struct {
	buf              []byte
	passed, good, at int

	levels   [maxLevels]int // outstanding elements of each open aggregate, the innermost last
	depth    int            // of levels
	elements int            // of the frame
	err      error          // stays
}

const (
	firstBuffer  = 4 << 10
	largestSpare = 64 << 10 // an empty buffer that is larger is dropped
)

// space is free space behind the bytes in the buffer.
func (f *frames) space() []byte {
	if f.passed > 0 {
		if f.passed == len(f.buf) && cap(f.buf) > largestSpare {
			f.buf = nil
		} else {
			f.buf = f.buf[:copy(f.buf, f.buf[f.passed:])]
		}
		f.good, f.at, f.passed = f.good-f.passed, f.at-f.passed, 0
	}
	if len(f.buf) == cap(f.buf) {
		f.buf = append(make([]byte, 0, max(firstBuffer, 2*cap(f.buf))), f.buf...)
	}
	return f.buf[len(f.buf):cap(f.buf)]
}

// next returns the next frame. nil: it has not come in whole, or f.err has the reason why it never will.
func (f *frames) next() []byte {
	for {
		size, children, err := element(f.buf[f.at:], f.at == f.good)
		switch {
		case err != nil:
			f.err = err
		case size == 0 && len(f.buf)-f.good > maxFrame:
			f.err = fmt.Errorf("%w: a reply of more than %d bytes", errMalformed, maxFrame)
		}
		if f.err != nil || size == 0 {
			return nil
		}
		f.at += size
		if f.elements += children; f.elements > maxElements {
			f.err = fmt.Errorf("%w: a reply of more than %d elements", errMalformed, maxElements)
			return nil
		}
		switch {
		case children > 0 && f.depth == maxLevels:
			f.err = fmt.Errorf("%w: a reply of more than %d levels", errMalformed, maxLevels)
			return nil
		case children > 0:
			f.levels[f.depth] = children
			f.depth++
			continue
		}
		for f.depth > 0 {
			if f.levels[f.depth-1]--; f.levels[f.depth-1] > 0 {
				break
			}
			f.depth--
		}
		if f.depth == 0 {
			f.elements = 0
			return f.buf[f.good:f.at]
		}
	}
}

// element measures the element at the start of b, an aggregate without its children. size is 0 if it has not come in
// whole. Types that no command of the engine is answered with are malformed: attributes, streams, and a push that is
// not a frame of its own.
func element(b []byte, first bool) (size, children int, err error) {
	if len(b) == 0 {
		return 0, 0, nil
	}
	end := bytes.IndexByte(b, '\n')
	if end < 0 || end > maxLine {
		if len(b) > maxLine {
			return 0, 0, fmt.Errorf("%w: a line of more than %d bytes", errMalformed, maxLine)
		}
		return 0, 0, nil
	}
	if end < 2 && b[0] != '_' || b[end-1] != '\r' {
		return 0, 0, malformed(b[:end])
	}
	line := b[1 : end-1]
	if bytes.IndexByte(line, '\r') >= 0 {
		return 0, 0, malformed(line)
	}
	ok := true
	switch typ := b[0]; typ {
	case '+', '-', ',', '(':
	case ':':
		_, err := strconv.ParseInt(string(line), 10, 64)
		ok = err == nil && line[0] != '+'
	case '_':
		ok = len(line) == 0
	case '#':
		ok = string(line) == "t" || string(line) == "f"
	case '$', '=', '!':
		var n int
		if n, ok = number(line, maxString, typ == '$'); n >= 0 && ok {
			whole := end + 1 + n + 2
			if len(b) < whole {
				return 0, 0, nil
			}
			ok, end = b[whole-2] == '\r' && b[whole-1] == '\n', whole-1
		}
	case '*', '~', '%', '>':
		children, ok = number(line, maxElements, typ == '*')
		ok = ok && (typ != '>' || first)
		if children = max(children, 0); typ == '%' {
			children *= 2
		}
	default:
		ok = false
	}
	if !ok {
		return 0, 0, malformed(b[:min(end, 64)])
	}
	return end + 1, children, nil
}

// number reads a length or a count. -1 stands for null.
func number(line []byte, most int, null bool) (n int, ok bool) {
	if null && string(line) == "-1" {
		return -1, true
	}
	for _, c := range line {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = 10*n + int(c-'0'); n > most {
			return 0, false
		}
	}
	return n, len(line) > 0
}

func malformed(what []byte) error { return fmt.Errorf("%w: %.40q", errMalformed, what) }

// requests reads the commands of the library, as they are written. The zero value is ready.
type requests struct {
	line  []byte // that has not ended
	args  int    // of the command, those still to come
	count int    // of all its arguments
	body  int    // bytes of the present argument still to come, with its line end
	name  []byte // the start of the first argument
}

// longestName is enough to tell names of commands apart.
const longestName = 16

// read notes in to the commands that end in p.
func (r *requests) read(p []byte, to *pending) {
	for len(p) > 0 {
		if r.body > 0 {
			n := min(r.body, len(p))
			if r.args == r.count {
				r.name = append(r.name, p[:min(n, longestName-len(r.name))]...)
			}
			p = p[n:]
			if r.body -= n; r.body > 0 {
				return
			}
			if r.args--; r.args == 0 {
				to.sent(answerTo(r.name), r.count-1)
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			r.line = append(r.line, p...)
			return
		}
		r.line = append(r.line, p[:end]...)
		n, _ := number(r.line[1:len(r.line)-1], maxString, false)
		if r.line[0] == '*' {
			r.args, r.count, r.name = n, n, r.name[:0]
		} else {
			r.body = n + 2
		}
		r.line, p = r.line[:0], p[end+1:]
	}
}

// answer is the form in which Redis answers a command.
type answer int

const (
	answerReply    answer = iota // one reply
	answerChannels               // a push for each channel, or an error
	answerLeave                  // pushes or an error. The library sends a PING behind it, to find the end of the pushes
	answerPong                   // the reply to that PING
)

func answerTo(name []byte) answer {
	command, _, _ := bytes.Cut(name, []byte("\r\n"))
	switch string(command) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		return answerChannels
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		return answerLeave
	}
	return answerReply
}

// pending are the answers that are outstanding, in the order of the commands. The zero value is ready.
type pending struct {
	mu      sync.Mutex // guards the fields below
	answers []awaited
	next    int    // of answers
	latest  answer // to the command that was sent last
}

type awaited struct {
	answer
	channels int // of answerChannels: all of them
	pushes   int // those that have come
}

// sent notes a command with that number of arguments behind its name. Requires no locks.
func (p *pending) sent(a answer, args int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == len(p.answers) {
		p.answers, p.next = p.answers[:0], 0
	}
	if p.latest == answerLeave {
		a = answerPong
	}
	p.latest = a
	p.answers = append(p.answers, awaited{answer: a, channels: args})
}

// answered notes a frame. The error says that it is out of place: the library would panic, or give it to another
// command. Requires no locks.
func (p *pending) answered(frame []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var head *awaited
	if p.next < len(p.answers) {
		head = &p.answers[p.next]
	}
	if frame[0] == '>' {
		return p.pushed(head, frame)
	}
	switch {
	case head == nil:
		return outOfPlace(frame, "nothing was asked")
	case head.answer == answerReply:
		p.next++
	case head.answer == answerChannels:
		if frame[0] != '-' || head.pushes > 0 {
			return outOfPlace(frame, "it confirms no subscription")
		}
		p.next++
	case head.answer == answerPong:
		if !isPong(frame) {
			return outOfPlace(frame, "it is no answer to PING")
		}
		p.next++
	case head.pushes == 0 && frame[0] == '-' && !isPong(frame): // Redis does not carry out the command
		p.next++
	case isPong(frame) && (head.pushes > 0 || frame[0] == '+'):
		p.next += 2 // the command has been carried out, and the PING behind it
	case isPong(frame): // the library would take it for the answer to the PING, and panic at that
		return fmt.Errorf("redis ends no subscription at present: %.40q", frame)
	default:
		return outOfPlace(frame, "it confirms no end of a subscription")
	}
	if p.next > len(p.answers) {
		return outOfPlace(frame, "PING was not sent")
	}
	return nil
}

// pushed is answered for a push. Requires p.mu.
func (p *pending) pushed(head *awaited, frame []byte) error {
	name, confirms := words(frame)
	subscribing := head != nil && head.answer == answerChannels
	switch name {
	case "subscribe", "psubscribe", "ssubscribe":
		if !subscribing || !confirms {
			return outOfPlace(frame, "nothing was subscribed to")
		}
		if head.pushes++; head.pushes == head.channels {
			p.next++
		}
	case "unsubscribe", "punsubscribe", "sunsubscribe":
		switch {
		case !confirms, subscribing && head.pushes > 0: // the library counts the confirmations by their number
			return outOfPlace(frame, "it comes between confirmations")
		case head != nil && head.answer == answerLeave:
			head.pushes++
		}
	}
	return nil
}

// isPong reports whether the library takes a frame for the reply to a PING.
func isPong(frame []byte) bool {
	if frame[0] == '-' {
		return bytes.HasPrefix(frame, []byte("-LOADING")) || bytes.HasPrefix(frame, []byte("-BUSY")) ||
			bytes.Contains(frame, []byte("'ping'"))
	}
	return string(frame) == "+PONG\r\n"
}

// words returns the first word of a push, and whether the push has the form of a confirmation: the word, a channel and
// a number.
func words(push []byte) (name string, confirms bool) {
	var types [3]byte
	size, children, _ := element(push, true)
	for i := range min(children, len(types)) {
		push = push[size:]
		types[i] = push[0]
		size, _, _ = element(push, false)
		if i == 0 && (push[0] == '$' || push[0] == '+') {
			text := push[:size-2]
			name = string(text[bytes.LastIndexByte(text, '\n')+1:])
			name = strings.TrimPrefix(name, "+")
		}
	}
	return name, children == len(types) && strings.IndexByte("$_", types[1]) >= 0 && types[2] == ':'
}

func outOfPlace(frame []byte, why string) error {
	return fmt.Errorf("redis has sent a reply out of place: %s: %.40q", why, frame[:min(len(frame), 64)])
}
