package resp

import (
	"bytes"
	"errors"
	"fmt"
)

// line reads the line of a length or a count byte by byte, without keeping it: all between the type byte and "\r\n".
// The line of a scalar is text and needs no check: a number that is none, as Redis passes on what a script or a module
// calls a number, says as well as any other where its reply ends.
type line struct {
	column int   // bytes so far
	number int64 // value so far, or one of the below
}

// Values of line.number that are no count.
const (
	null  = -1 // "-1"
	minus = -2 // "-", the 1 is still to come
)

// maxDigits bounds a count or a length: 18 digits fit an int64, and twice their value too.
const maxDigits = 18

var errCount = errors.New("resp: malformed count or length")

// add takes the next byte.
func (l *line) add(typ, c byte) error {
	switch {
	case isDigit(c) && l.number >= 0 && l.column < maxDigits:
		l.number = l.number*10 + int64(c-'0')
	case c == '1' && l.number == minus:
		l.number = null
	case c == '-' && l.column == 0 && (typ == byte(Bulk) || typ == byte(Array)):
		l.number = minus
	default:
		return errCount
	}
	l.column++
	return nil
}

// end checks that the line may end here.
func (l *line) end(typ byte) error {
	if l.column == 0 || l.number == minus {
		return malformed(typ, '\r')
	}
	return nil
}

// whole returns the length of the element at the start of b if it is complete there, no aggregate and well-formed; else
// 0, and the way byte by byte finds out. It is what nearly all replies go through.
func whole(b []byte) int {
	switch b[0] {
	case byte(Bulk):
		return wholeBulk(b)
	case byte(SimpleString), byte(SimpleError), byte(Null), byte(Double), byte(Boolean), byte(BigNumber):
		if end := bytes.IndexByte(b, '\n'); end > 1 && b[end-1] == '\r' {
			return end + 1
		}
	case byte(Integer):
		i := 1
		if len(b) > 1 && b[1] == '-' {
			i = 2
		}
		first := i
		for i < len(b) && isDigit(b[i]) {
			i++
		}
		if i > first && i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n' {
			return i + 2
		}
	}
	return 0
}

func wholeBulk(b []byte) int {
	size, i := 0, 1
	for i < len(b) && isDigit(b[i]) && i <= maxDigits {
		size = size*10 + int(b[i]-'0')
		i++
	}
	end := i + 2 + size // the body's
	if i == 1 || len(b) < end+2 || b[i] != '\r' || b[i+1] != '\n' || b[end] != '\r' || b[end+1] != '\n' {
		return 0
	}
	return end + 2
}

func malformed(typ, c byte) error { return fmt.Errorf("resp: %q in an element of type %q", c, typ) }

func isDigit(c byte) bool { return c-'0' <= 9 }

// isText tells whether the line of that type is free text: that of every scalar.
func isText(typ byte) bool {
	switch Kind(typ) {
	case SimpleString, SimpleError, Integer, Null, Double, Boolean, BigNumber:
		return true
	default:
		return false
	}
}

// isString tells whether the line of that type is a length.
func isString(typ byte) bool {
	return typ == byte(Bulk) || typ == byte(BulkError) || typ == byte(Verbatim)
}

// isAggregate tells whether the line of that type is a count.
func isAggregate(typ byte) bool {
	switch typ {
	case byte(Array), byte(Map), byte(Set), byte(Push), attribute:
		return true
	}
	return false
}

// isPairs tells whether the count of that type counts pairs.
func isPairs(typ byte) bool { return typ == byte(Map) || typ == attribute }

// isType tells whether an element may start with that byte.
func isType(typ byte) bool { return isText(typ) || isAggregate(typ) || isString(typ) }
