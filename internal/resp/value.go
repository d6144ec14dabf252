package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// Value is one decoded reply of either protocol version.
type Value struct {
	Kind Kind
	// Str is the text of strings, errors (without '-'), doubles, big numbers and verbatim strings (without "txt:"). It
	// aliases the decoded bytes.
	Str   []byte
	Int   int64   // of an integer; 1 for true
	Null  bool    // "_", "$-1" or "*-1"; Kind tells which
	Elems []Value // of aggregates; of maps key, value, key, value
}

// ErrIncomplete says that the reply goes on behind the bytes given to Decode.
var ErrIncomplete = errors.New("resp: incomplete reply")

var (
	errVerbatim = errors.New("resp: verbatim string without a format")
	errDepth    = fmt.Errorf("resp: more than %d levels", maxDepth)
)

// IsError tells whether Redis answered with an error; Str is its text.
func (v Value) IsError() bool { return v.Kind == SimpleError || v.Kind == BulkError }

// Field is the value of a field of a map, which is flat in RESP2; the zero value: there is none.
func (v Value) Field(name string) Value {
	for i := 0; i+1 < len(v.Elems); i += 2 {
		if string(v.Elems[i].Str) == name {
			return v.Elems[i+1]
		}
	}
	return Value{}
}

// Decode decodes the reply at the start of b, n bytes long. It is for the few replies the proxy reads itself, not for
// traffic. An error is ErrIncomplete or says what is malformed or too deep; Decode refuses more than 128 levels, and
// more than four million elements, which take far more memory than their bytes.
func Decode(b []byte) (v Value, n int, err error) {
	d := decoder{rest: b}
	if v, err = d.value(maxDepth); err != nil {
		return Value{}, 0, err
	}
	return v, len(b) - len(d.rest), nil
}

// maxDepth bounds the nesting. It is unbounded in a Scanner and must be: Redis ends a Lua script's cyclic table only at
// its stack limit, thousands of levels down, and passes all of them on.
const maxDepth = 128

// maxElements bounds the elements of a decoded reply, attributes included.
const maxElements = 4 << 20

type decoder struct {
	rest  []byte
	count int // of elements so far
}

// value decodes one element, and skips the attributes in front of it.
func (d *decoder) value(depth int) (v Value, err error) {
	if depth == 0 {
		return v, errDepth
	}
	for {
		typ, text, number, err := d.line()
		if err != nil {
			return v, err
		}
		if typ != attribute {
			return d.body(depth, typ, text, number)
		}
		if _, err = d.elems(depth, typ, number); err != nil {
			return v, err
		}
	}
}

// body decodes what belongs to a line already read.
func (d *decoder) body(depth int, typ byte, text []byte, number int64) (v Value, err error) {
	v.Kind = Kind(typ)
	switch {
	case typ == byte(Null) || number == null:
		v.Null = true
	case isString(typ):
		v.Str, err = d.bytes(number)
		if v.Kind == Verbatim && err == nil {
			if len(v.Str) < 4 || v.Str[3] != ':' {
				return v, errVerbatim
			}
			v.Str = v.Str[4:]
		}
	case isAggregate(typ):
		v.Elems, err = d.elems(depth, typ, number)
	case v.Kind == Integer:
		v.Int, err = parseInteger(text)
	case v.Kind == Boolean:
		if string(text) == "t" {
			v.Int = 1
		}
	default:
		v.Str = text
	}
	return v, err
}

// parseInteger is strconv.ParseInt, four times as fast for what a fence is: a positive number that cannot overflow.
func parseInteger(text []byte) (n int64, err error) {
	if len(text) == 0 || len(text) > maxDigits {
		return strconv.ParseInt(string(text), 10, 64)
	}
	for _, c := range text {
		if !isDigit(c) {
			return strconv.ParseInt(string(text), 10, 64)
		}
		n = n*10 + int64(c-'0')
	}
	return n, nil
}

// line takes an element's line. number is that of a header.
func (d *decoder) line() (typ byte, text []byte, number int64, err error) {
	if len(d.rest) == 0 {
		return 0, nil, 0, ErrIncomplete
	}
	if typ = d.rest[0]; !isType(typ) {
		return typ, nil, 0, fmt.Errorf("resp: unknown type %q", typ)
	}
	end := bytes.Index(d.rest, []byte("\r\n"))
	if end < 1 {
		return typ, nil, 0, ErrIncomplete
	}
	text, d.rest = d.rest[1:end], d.rest[end+2:]
	if isText(typ) {
		return typ, text, 0, nil
	}
	var l line
	for _, c := range text {
		if err := l.add(typ, c); err != nil {
			return typ, nil, 0, err
		}
	}
	return typ, text, l.number, l.end(typ)
}

// bytes takes a string of that length.
func (d *decoder) bytes(length int64) ([]byte, error) {
	if int64(len(d.rest))-2 < length {
		return nil, ErrIncomplete
	}
	text, end := d.rest[:length:length], d.rest[length:]
	if end[0] != '\r' || end[1] != '\n' {
		return nil, errLineEnd
	}
	d.rest = end[2:]
	return text, nil
}

// elems takes the elements of an aggregate.
func (d *decoder) elems(depth int, typ byte, count int64) ([]Value, error) {
	if isPairs(typ) {
		count *= 2
	}
	var elems []Value
	for range count {
		if d.count++; d.count > maxElements {
			return nil, errTooMany
		}
		v, err := d.value(depth - 1)
		if err != nil {
			return nil, err
		}
		elems = append(elems, v)
	}
	return elems, nil
}
