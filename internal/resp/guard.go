package resp

import (
	"bytes"
	"errors"
	"strconv"
)

// What a client may announce: Redis's defaults, but for the number of arguments.
const (
	maxBulk   = 512 << 20 // bytes of one argument (proto-max-bulk-len)
	maxArgs   = 1 << 20   // arguments of one command
	maxInline = 64 << 10  // bytes of an inline command or of a header line that has not ended
)

// What a client may announce before it has authenticated, from networking.c.
const (
	restrictedArgs = 10
	restrictedBulk = 16 << 10
)

// maxRedisArgs is the count above which Redis 7.0 itself refuses a command (INT_MAX).
const maxRedisArgs = 1<<31 - 1

// Frame is one whole command in array form. Raw is empty for what Redis ignores: "*0", "*-1", a blank line.
type Frame struct {
	Raw  []byte // the command; parses in redcon without error
	Name []byte // its first argument; may be empty, as in "$0"
}

// Guard checks the requests of one client, one command at a time, with Redis's limits and wording. It is not safe for
// concurrent use. Make one with NewGuard.
type Guard struct {
	restricted bool
	most       int64 // see LimitBulk; 0: none
	err        error // the first error; the connection is of no use afterwards

	// The command at the start of the caller's buffer. Offsets count from there and may be negative after Discard.
	pos     int // first byte not yet checked
	scanned int // no line end in buf[pos:scanned]
	argc    int
	left    int    // arguments still to come; 0: the first header is not complete
	bulk    int    // length of the argument at pos, -1 while its header is not complete
	name    int    // offset of the first argument; 0: not known
	nameLen int    // its length
	last    []byte // the buffer of the last call while a command is open

	// Reused by inline commands.
	tokens tokens
	inline []byte
}

// keepInline is how many bytes of inline buffers a Guard keeps between commands, so that one long line does not cost an
// idle client its memory for ever.
const keepInline = 4 << 10

// redisLine is how long an inline command may be, with its '\n', that comes at once. Redis looks for the '\n' before it
// looks at the length, in a buffer that has this size by then. Without a '\n', more than maxInline bytes are too many.
const redisLine = 80<<10 - 10

// NewGuard returns a Guard for one connection, unrestricted.
func NewGuard() *Guard { return &Guard{bulk: -1} }

// LimitBulk has headers read from now on held to another limit of Redis's, at least 16 KiB, if it is smaller than the
// guard's own.
func (g *Guard) LimitBulk(most int64) { g.most = most }

// Restrict sets whether headers read from now on are held to what Redis grants a client before it has authenticated:
// 10 arguments of 16 KiB.
func (g *Guard) Restrict(on bool) { g.restricted = on }

// Restricted reports what Restrict was told.
func (g *Guard) Restricted() bool { return g.restricted }

// Next looks for one whole command at the start of buf.
//
// n > 0: f is that command and took buf[:n]. f.Raw aliases buf; that of an inline command is the Guard's memory, valid
// until the next call. n == 0 and no error: the command is incomplete; call again with the same start and more bytes,
// and the search resumes where it stopped. An error has Redis's text without the leading "ERR", and stays: Redis
// answers it, and closes the connection.
//
// Next writes to buf[:n]: where Redis skips the bytes of a line end unseen, it puts the "\r\n" that belongs there.
func (g *Guard) Next(buf []byte) (f Frame, n int, err error) {
	if g.err != nil {
		return Frame{}, 0, g.err
	}
	if g.left == 0 {
		if len(buf) == 0 {
			return Frame{}, 0, nil
		}
		if buf[0] != '*' {
			return g.nextInline(buf)
		}
		if count, body := plainHeader(buf, 0, '*'); count > 0 && count <= restrictedArgs {
			g.pos, g.scanned, g.argc, g.left = body, body, count, count
		} else if n, err = g.readCount(buf); n > 0 || err != nil || g.left == 0 {
			return Frame{}, n, err
		}
	}
	pos, left, bulk := g.pos, g.left, g.bulk
	for left > 0 {
		if bulk < 0 {
			var body int
			if bulk, body = plainHeader(buf, pos, '$'); bulk < 0 || bulk > restrictedBulk {
				// Incomplete, large, unusual or wrong: the thorough way.
				g.pos, g.left, g.bulk = pos, left, -1
				g.scanned = max(g.scanned, pos)
				if bulk, body, err = g.readBulk(buf); bulk < 0 || err != nil {
					g.last = buf
					return Frame{}, 0, err
				}
			}
			pos = body
			if left == g.argc {
				g.name, g.nameLen = body, bulk
			}
		}
		end := pos + bulk
		if len(buf) < end+2 {
			g.pos, g.left, g.bulk, g.last = pos, left, bulk, buf
			return Frame{}, 0, nil
		}
		if buf[end] != '\r' || buf[end+1] != '\n' {
			buf[end], buf[end+1] = '\r', '\n'
		}
		pos, bulk = end+2, -1
		left--
	}
	f = Frame{Raw: buf[:pos]}
	if g.name > 0 {
		f.Name = buf[g.name : g.name+g.nameLen]
	}
	g.reset()
	return f, pos, nil
}

// Need returns the length buf must have before another call of Next can get any further: the end of the open argument
// if its header has been read, else one byte more than the last time. It never adds up more than one header announced.
func (g *Guard) Need() int {
	if g.bulk >= 0 {
		return g.pos + g.bulk + 2
	}
	return len(g.last) + 1
}

// Open returns the name of the command that Next left incomplete, if its first argument is complete and nothing of it
// was discarded. The name aliases the buffer last given to Next.
func (g *Guard) Open() (name []byte, ok bool) {
	if g.left == 0 || g.left == g.argc || g.name <= 0 {
		return nil, false
	}
	return g.last[g.name : g.name+g.nameLen], true
}

// Checked returns how many bytes of the incomplete array-form command are checked and final, so that they may be sent
// ahead: all complete headers and arguments, and the bytes of the open argument that are there.
func (g *Guard) Checked() int {
	switch {
	case g.left == 0:
		return 0
	case g.bulk >= 0:
		return min(len(g.last), g.pos+g.bulk)
	}
	return g.pos
}

// Discard tells the Guard that the caller took n <= Checked() bytes off the start of the buffer. The Frame in the end
// holds only the bytes behind them; it has no Name if that was among the bytes taken.
func (g *Guard) Discard(n int) {
	if n < 0 || n > g.Checked() {
		panic("BUG: discard of unchecked bytes")
	}
	if n == 0 {
		return
	}
	g.pos -= n
	g.scanned -= n
	g.name = 0 // gone with the first bytes; if it is still to come, readBulk's caller sets it
	g.last = g.last[n:]
}

// readCount reads the header "*count". n > 0: the command is empty and took n bytes. g.left stays 0 while it is
// incomplete.
func (g *Guard) readCount(buf []byte) (n int, err error) {
	end, found := g.header(buf)
	if !found {
		return 0, g.overlong(buf, bigMultibulk)
	}
	count, ok := parseLength(buf[1:end])
	switch {
	case !ok || count > maxRedisArgs:
		return 0, g.fail(badMultibulk)
	case count > restrictedArgs && g.restricted:
		return 0, g.fail(unauthMultibulk)
	case count > maxArgs:
		return 0, g.fail(badMultibulk)
	}
	if count <= 0 {
		g.reset()
		return end + 2, nil
	}
	g.pos, g.scanned = end+2, end+2
	g.argc, g.left = int(count), int(count)
	return 0, nil
}

// readBulk reads the header "$length" at g.pos. length < 0: incomplete.
func (g *Guard) readBulk(buf []byte) (length, body int, err error) {
	end, found := g.header(buf)
	if !found {
		return -1, 0, g.overlong(buf, bigBulk)
	}
	if buf[g.pos] != '$' {
		return -1, 0, g.fail(expectedBulk(buf[g.pos]))
	}
	size, ok := parseLength(buf[g.pos+1 : end])
	switch {
	case !ok || size < 0 || size > maxBulk || g.most > 0 && size > g.most:
		return -1, 0, g.fail(badBulk)
	case size > restrictedBulk && g.restricted:
		return -1, 0, g.fail(unauthBulk)
	}
	return int(size), end + 2, nil
}

// header looks for the '\r' that ends the line at g.pos, and for one more byte. It stops for good at a zero byte, as
// Redis's strchr does.
func (g *Guard) header(buf []byte) (end int, found bool) {
	i, last := g.scanned, g.pos+maxInline
	for i < len(buf) && i <= last && buf[i] != '\r' && buf[i] != 0 {
		i++
	}
	g.scanned = i
	if i > last || i+1 >= len(buf) || buf[i] == 0 {
		return 0, false
	}
	if buf[i+1] != '\n' {
		buf[i+1] = '\n'
	}
	return i, true
}

// overlong returns the error for a line that has not ended within its limit, nil while it still can.
func (g *Guard) overlong(buf []byte, reason string) error {
	// A '\r' may be the last byte allowed, with the byte behind it still to come.
	last := g.pos + maxInline
	atEnd := g.scanned <= last && g.scanned < len(buf) && buf[g.scanned] == '\r'
	if len(buf) > last && !atEnd {
		return g.fail(reason)
	}
	g.last = buf
	return nil
}

// nextInline is Next for a line of words. It returns the words as an array.
func (g *Guard) nextInline(buf []byte) (f Frame, n int, err error) {
	end, found := g.lineEnd(buf)
	if !found {
		return Frame{}, 0, g.overlong(buf, bigInline)
	}
	n = end + 1
	if end > 0 && buf[end-1] == '\r' {
		end--
	}
	if !g.tokens.split(buf[:end]) {
		return Frame{}, 0, g.fail(unbalanced)
	}
	g.reset()
	argc := len(g.tokens.ends)
	if argc == 0 {
		return Frame{}, n, nil
	}
	raw := AppendHeader(g.inline[:0], '*', argc)
	for i := range argc {
		raw = AppendBulk(raw, g.tokens.token(i))
	}
	g.inline = raw
	return Frame{Raw: raw, Name: g.tokens.token(0)}, n, nil
}

// lineEnd looks for the '\n' of an inline command. It stops for good at a zero byte, as Redis's strchr does.
func (g *Guard) lineEnd(buf []byte) (end int, found bool) {
	if g.scanned < len(buf) && buf[g.scanned] == 0 {
		return 0, false
	}
	rest := buf[g.scanned:max(g.scanned, min(len(buf), redisLine))]
	if end = bytes.IndexByte(rest, '\n'); end >= 0 {
		rest, found = rest[:end], true
	}
	if zero := bytes.IndexByte(rest, 0); zero >= 0 {
		g.scanned += zero
		return 0, false
	}
	g.scanned += len(rest)
	return g.scanned, found
}

// Kept is the number of bytes that the Guard keeps for inline commands.
func (g *Guard) Kept() int { return cap(g.inline) + cap(g.tokens.text) + 8*cap(g.tokens.ends) }

// Trim releases the memory that a long inline command has taken. The last Frame is no longer valid.
func (g *Guard) Trim() {
	if g.Kept() > keepInline {
		g.tokens, g.inline = tokens{}, nil
	}
}

func (g *Guard) reset() {
	g.pos, g.scanned, g.argc, g.left, g.bulk = 0, 0, 0, 0, -1
	g.name, g.nameLen, g.last = 0, 0, nil
}

func (g *Guard) fail(reason string) error {
	g.reset()
	g.err = errors.New("Protocol error: " + reason)
	return g.err
}

// plainHeader reads a plain "$length\r\n" or "*count\r\n" of up to five digits at pos. length < 0: not all there, or
// not plain.
func plainHeader(buf []byte, pos int, kind byte) (length, body int) {
	if len(buf)-pos < 4 || buf[pos] != kind {
		return -1, 0
	}
	// "0" and leading zeros are left to parseLength.
	c := buf[pos+1] - '0'
	if c-1 > 8 {
		return -1, 0
	}
	length = int(c)
	last := min(pos+6, len(buf)-2)
	for i := pos + 2; i <= last; i++ {
		c = buf[i] - '0'
		if c > 9 {
			if buf[i] == '\r' && buf[i+1] == '\n' {
				return length, i + 2
			}
			return -1, 0
		}
		length = length*10 + int(c)
	}
	return -1, 0
}

// parseLength is Redis's string2ll: a decimal int64 without plus sign, leading zeros, "-0" or blanks.
func parseLength(b []byte) (n int64, ok bool) {
	if len(b) == 1 && '0' <= b[0] && b[0] <= '9' {
		return int64(b[0] - '0'), true
	}
	digits := bytes.TrimPrefix(b, []byte("-"))
	if len(digits) == 0 || len(b) > 20 || digits[0] < '1' || digits[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}
