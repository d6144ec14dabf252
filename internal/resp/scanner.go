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

// The other type bytes.
const (
	attribute = '|'
	chunk     = ';' // a part of a streamed string
	streamEnd = '.'
)

// maxDepth bounds what costs memory or stack per level: streamed aggregates inside each other in a Scanner, which no
// Redis sends so far, and any nesting in Decode. Plain nesting is unbounded in a Scanner and must be: Redis ends a Lua
// script's cyclic table only at its stack limit, thousands of levels down, and passes all of them on.
const maxDepth = 128

// Scanner finds where replies end in the bytes of one connection. The zero value is ready. It is not safe for
// concurrent use.
type Scanner struct {
	kind  Kind
	state state
	err   error // stays until Reset

	pending int64    // elements outstanding in the innermost streamed aggregate's current item, or in the whole reply
	streams []stream // the open streamed aggregates, outermost first

	// The element being read.
	typ    byte
	line   line  // of a length or a count
	body   int64 // bytes of its string still to come
	chunks bool  // inside a streamed string
}

// stream is an open streamed aggregate.
type stream struct {
	pending int64 // of the level around it
	isMap   bool
	odd     bool // a key has come, its value has not
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
	errDepth   = fmt.Errorf("resp: more than %d levels", maxDepth)
	errLineEnd = errors.New("resp: string not followed by a line end")
	errStream  = errors.New("resp: stray end of stream")
)

// Kind returns the kind of the reply being scanned or just finished, 0 while it is not known.
func (s *Scanner) Kind() Kind { return s.kind }

// Reset forgets everything, for a new connection.
func (s *Scanner) Reset() { *s = Scanner{streams: s.streams[:0]} }

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
		took, ended, err := s.step(b[n:])
		n += took
		if err != nil {
			s.err = err
			return n, false, err
		}
		if ended && s.pending == 0 && len(s.streams) == 0 {
			s.state = between
			return n, true, nil
		}
	}
	return n, false, nil
}

// step goes on by one state in b, which is not empty. ended says that an element has ended, be it a string or the
// header of an aggregate.
func (s *Scanner) step(b []byte) (n int, ended bool, err error) {
	switch s.state {
	case atType:
		if !s.chunks {
			if n = whole(b); n > 0 {
				s.begin(b[0])
				return n, true, nil
			}
		}
		return 1, false, s.readType(b[0])
	case inLine:
		return s.readLine(b)
	case atLineLF:
		if b[0] == '\n' {
			ended, err = s.endLine()
			return 1, ended, err
		}
		if !isText(s.typ) {
			return 0, false, malformed(s.typ, b[0])
		}
		s.state = inLine // a lone '\r' is text
		return 0, false, nil
	case inBody:
		n = int(min(s.body, int64(len(b))))
		if s.body -= int64(n); s.body == 0 {
			s.state = atBodyCR
		}
		return n, false, nil
	case atBodyCR:
		if b[0] != '\r' {
			return 0, false, errLineEnd
		}
		s.state = atBodyLF
		return 1, false, nil
	default: // atBodyLF
		if b[0] != '\n' {
			return 0, false, errLineEnd
		}
		s.state = atType
		return 1, !s.chunks, nil
	}
}

// readType starts an element whose first byte is typ.
func (s *Scanner) readType(typ byte) error {
	switch {
	case s.chunks:
		if typ != chunk {
			return malformed(chunk, typ)
		}
	case typ == streamEnd:
		top := len(s.streams) - 1
		if top < 0 || s.pending > 0 || s.streams[top].odd {
			return errStream
		}
	case typ == chunk || !isType(typ):
		return fmt.Errorf("resp: unknown type %q", typ)
	default:
		s.begin(typ)
	}
	s.typ, s.line, s.state = typ, line{}, inLine
	return nil
}

// begin counts an element that starts with typ.
func (s *Scanner) begin(typ byte) {
	if s.kind == 0 && s.pending == 1 && len(s.streams) == 0 && typ != attribute {
		// Elements of an attribute in front come while more than the reply itself is outstanding.
		s.kind = Kind(typ)
	}
	if s.pending == 0 { // the next item of a streamed aggregate, whose number is not known
		top := &s.streams[len(s.streams)-1]
		top.odd = top.isMap && !top.odd
		s.pending = 1
	}
	if typ != attribute {
		s.pending--
	}
}

// readLine goes on in the line of an element.
func (s *Scanner) readLine(b []byte) (n int, ended bool, err error) {
	if isText(s.typ) {
		if n = bytes.IndexByte(b, '\r'); n < 0 {
			return len(b), false, nil
		}
		s.state = atLineLF
		return n + 1, false, nil
	}
	for ; n < len(b); n++ {
		if b[n] == '\r' {
			s.state = atLineLF
			return n + 1, false, nil
		}
		if err := s.line.add(s.typ, b[n]); err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// endLine acts on a complete line: a scalar ends with it, a string's bytes or an aggregate's elements follow.
func (s *Scanner) endLine() (ended bool, err error) {
	if !isText(s.typ) {
		if err := s.line.end(s.typ); err != nil {
			return false, err
		}
	}
	s.state = atType
	n := s.line.number
	switch {
	case s.typ == chunk && n == 0:
		s.chunks = false
		return true, nil
	case isString(s.typ) && n == streamed:
		s.chunks = true
		return false, nil
	case isString(s.typ) && n >= 0:
		s.body, s.state = n, inBody
		if n == 0 {
			s.state = atBodyCR
		}
		return false, nil
	case s.typ == streamEnd:
		top := len(s.streams) - 1
		s.pending = s.streams[top].pending
		s.streams = s.streams[:top]
	case isAggregate(s.typ) && n == streamed:
		if len(s.streams) == maxDepth {
			return false, errDepth
		}
		s.streams = append(s.streams, stream{pending: s.pending, isMap: s.typ == byte(Map)})
		s.pending = 0
		return false, nil
	case isAggregate(s.typ) && n > 0:
		if isPairs(s.typ) {
			n *= 2
		}
		if s.pending > math.MaxInt64-n {
			return false, errTooMany
		}
		s.pending += n
	case s.typ == attribute:
		return false, nil
	}
	return true, nil
}
