package resp

import "bytes"

// tokens holds the unquoted arguments of one line back to back. The zero value is ready, and reusable.
type tokens struct {
	text []byte
	ends []int
}

// token returns argument i; it aliases t.
func (t *tokens) token(i int) []byte {
	start := 0
	if i > 0 {
		start = t.ends[i-1]
	}
	return t.text[start:t.ends[i]:t.ends[i]]
}

// split replaces the arguments by those of an inline command, given without its line end, as Redis does (sdssplitargs):
// blanks separate, "..." knows \n \r \t \a \b \xHH and \ before any other byte, '...' knows \', and a closing quote
// must be followed by a blank or the end. A zero byte ends the line. It reports false when quotes are unbalanced.
func (t *tokens) split(line []byte) bool {
	t.text, t.ends = t.text[:0], t.ends[:0]
	if end := bytes.IndexByte(line, 0); end >= 0 {
		line = line[:end]
	}
	for {
		for len(line) > 0 && isSpace(line[0]) {
			line = line[1:]
		}
		if len(line) == 0 {
			return true
		}
		n, ok := t.next(line)
		if !ok {
			return false
		}
		line = line[n:]
		t.ends = append(t.ends, len(t.text))
	}
}

// next appends the argument at the start of line to t.text and returns how many bytes of line it took. A quote may open
// in the middle of an argument, but a closed one ends it.
func (t *tokens) next(line []byte) (n int, ok bool) {
	for i, c := range line {
		switch c {
		case ' ', '\n', '\r', '\t':
			return i, true
		case '"', '\'':
			var length int
			if c == '"' {
				length = t.double(line[i+1:])
			} else {
				length = t.single(line[i+1:])
			}
			end := i + 1 + length
			if length == 0 || end < len(line) && !isSpace(line[end]) {
				return 0, false
			}
			return end, true
		default:
			t.text = append(t.text, c)
		}
	}
	return len(line), true
}

// double appends the text up to the closing double quote and returns its length in s, quote included; 0 if none closes.
func (t *tokens) double(s []byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return i + 1
		case s[i] != '\\' || i+1 == len(s):
			t.text = append(t.text, s[i])
		case s[i+1] == 'x' && i+3 < len(s) && isHex(s[i+2]) && isHex(s[i+3]):
			t.text = append(t.text, unhex(s[i+2])<<4|unhex(s[i+3]))
			i += 3
		default:
			i++
			t.text = append(t.text, unescape(s[i]))
		}
	}
	return 0
}

// single is double for single quotes, where only \' is special.
func (t *tokens) single(s []byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\'':
			return i + 1
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '\'':
			i++
			t.text = append(t.text, '\'')
		default:
			t.text = append(t.text, s[i])
		}
	}
	return 0
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

// isSpace is C's isspace in the locale "C". Vertical tab and form feed are blanks between arguments, but inside one
// they are text: so Redis has it.
func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
