package resp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// Kind is the type of a reply: its first byte in either version of the protocol.
type Kind byte

// The kinds of replies. An attribute ('|') is no reply of its own: it belongs to the one behind it.
const (
	SimpleString Kind = '+'
	SimpleError  Kind = '-'
	Integer      Kind = ':'
	Bulk         Kind = '$'
	Array        Kind = '*'
	Null         Kind = '_'
	Double       Kind = ','
	Boolean      Kind = '#'
	BulkError    Kind = '!'
	Verbatim     Kind = '='
	BigNumber    Kind = '('
	Map          Kind = '%'
	Set          Kind = '~'
	Push         Kind = '>'
)

const attribute = '|'

// Scanner finds where replies end in the bytes of one connection. The zero value is ready. It is not safe for
// concurrent use.
type Scanner struct {
	kind  Kind
	state state
	err   error // stays

	pending int64 // elements of the reply still to begin

	// The element being read.
	typ  byte
	line line  // of a length or a count
	body int64 // bytes of its string still to come
}

type state byte

const (
	between  state = iota // between two replies
	atType                // at the first byte of an element
	inLine                // behind the first byte, before the line's end
	atLineLF              // behind the '\r' of a line
	inBody                // in the bytes of a string
	atBodyCR              // behind them
	atBodyLF
)

var (
	errTooMany = errors.New("resp: too many elements")
	errLineEnd = errors.New("resp: string not followed by a line end")
)

// Kind returns the kind of the reply being scanned or just finished, 0 while it is not known.
func (s *Scanner) Kind() Kind { return s.kind }

// Scan takes bytes of one reply from b: n bytes belong to it, and done says that it ends there. The bytes behind them
// belong to the next reply and the next call. b is not kept. An error says that the stream cannot be understood any
// more; it stays.
func (s *Scanner) Scan(b []byte) (n int, done bool, err error) {
	if s.err != nil {
		return 0, false, s.err
	}
	if s.state == between {
		if len(b) == 0 {
			return 0, false, nil
		}
		if n := whole(b); n > 0 {
			s.kind = Kind(b[0])
			return n, true, nil
		}
		s.kind, s.pending, s.state = 0, 1, atType
	}
	for n < len(b) {
		took, err := s.step(b[n:])
		n += took
		if err != nil {
			s.err = err
			return n, false, err
		}
		if s.state == atType && s.pending == 0 {
			s.state = between
			return n, true, nil
		}
	}
	return n, false, nil
}

// step goes on by one state in b, which is not empty.
func (s *Scanner) step(b []byte) (n int, err error) {
	switch s.state {
	case atType:
		if n = whole(b); n > 0 {
			s.begin(b[0])
			return n, nil
		}
		if !isType(b[0]) {
			return 1, fmt.Errorf("resp: unknown type %q", b[0])
		}
		s.begin(b[0])
		s.typ, s.line, s.state = b[0], line{}, inLine
		return 1, nil
	case inLine:
		return s.readLine(b)
	case atLineLF:
		if b[0] == '\n' {
			return 1, s.endLine()
		}
		if !isText(s.typ) {
			return 0, malformed(s.typ, b[0])
		}
		s.state = inLine // a lone '\r' is text
		return 0, nil
	case inBody:
		n = int(min(s.body, int64(len(b))))
		if s.body -= int64(n); s.body == 0 {
			s.state = atBodyCR
		}
		return n, nil
	case atBodyCR:
		if b[0] != '\r' {
			return 0, errLineEnd
		}
		s.state = atBodyLF
		return 1, nil
	default: // atBodyLF
		if b[0] != '\n' {
			return 0, errLineEnd
		}
		s.state = atType
		return 1, nil
	}
}

// begin counts an element that starts with typ.
func (s *Scanner) begin(typ byte) {
	if typ == attribute {
		return
	}
	if s.kind == 0 && s.pending == 1 { // elements of an attribute in front come while more than the reply is outstanding
		s.kind = Kind(typ)
	}
	s.pending--
}

// readLine goes on in the line of an element.
func (s *Scanner) readLine(b []byte) (n int, err error) {
	if isText(s.typ) {
		if n = bytes.IndexByte(b, '\r'); n < 0 {
			return len(b), nil
		}
		s.state = atLineLF
		return n + 1, nil
	}
	for ; n < len(b); n++ {
		if b[n] == '\r' {
			s.state = atLineLF
			return n + 1, nil
		}
		if err := s.line.add(s.typ, b[n]); err != nil {
			return n, err
		}
	}
	return n, nil
}

// endLine acts on a complete line: a scalar ends with it, a string's bytes or an aggregate's elements follow.
func (s *Scanner) endLine() error {
	s.state = atType
	if isText(s.typ) {
		return nil
	}
	if err := s.line.end(s.typ); err != nil {
		return err
	}
	n := s.line.number
	switch {
	case n == null:
	case isString(s.typ):
		if s.body, s.state = n, inBody; n == 0 {
			s.state = atBodyCR
		}
	default:
		if isPairs(s.typ) {
			n *= 2
		}
		if s.pending > math.MaxInt64-n {
			return errTooMany
		}
		s.pending += n
	}
	return nil
}
