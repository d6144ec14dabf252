package resp

import (
	"strconv"
	"time"

	"github.com/tidwall/redcon"
)

// OK is the reply of a command that has nothing else to say.
const OK = "+OK\r\n"

// IsOK reports whether a reply begins with OK.
func IsOK(reply []byte) bool { return len(reply) >= len(OK) && string(reply[:len(OK)]) == OK }

// IsError reports whether a reply is an error, of either kind.
func IsError(reply []byte) bool { return reply[0] == byte(SimpleError) || reply[0] == byte(BulkError) }

// AppendError appends an error reply, "-CODE text\r\n". Line breaks in text become spaces.
func AppendError(dst []byte, code Code, text string) []byte {
	return AppendRawError(dst, string(code)+" "+text)
}

// AppendRawError appends an error reply whose text already starts with its code. Line breaks become spaces.
func AppendRawError(dst []byte, text string) []byte {
	return redcon.AppendError(dst, text)
}

// AppendCommand appends a command in array form.
func AppendCommand[T []byte | string](dst []byte, args ...T) []byte {
	dst = redcon.AppendArray(dst, len(args))
	for _, arg := range args {
		dst = AppendBulk(dst, arg)
	}
	return dst
}

// AppendMapHeader appends the header of a map of n pairs: a map in protocol version 3, a flat array of 2n elements in
// version 2.
func AppendMapHeader(dst []byte, proto, n int) []byte {
	if proto >= 3 {
		return AppendHeader(dst, '%', n)
	}
	return AppendHeader(dst, '*', 2*n)
}

// AppendNull appends a null: "_" in protocol version 3, a null bulk string in version 2.
func AppendNull(dst []byte, proto int) []byte {
	if proto >= 3 {
		return append(dst, '_', '\r', '\n')
	}
	return redcon.AppendNull(dst)
}

// AppendNullArray appends a null: "_" in protocol version 3, a null array in version 2.
func AppendNullArray(dst []byte, proto int) []byte {
	if proto >= 3 {
		return AppendNull(dst, proto)
	}
	return AppendHeader(dst, '*', -1)
}

// AppendSetHeader appends the header of a set of n elements: a set in protocol version 3, an array in version 2.
func AppendSetHeader(dst []byte, proto, n int) []byte {
	if proto >= 3 {
		return AppendHeader(dst, '~', n)
	}
	return AppendHeader(dst, '*', n)
}

// AppendBulk appends a bulk string.
func AppendBulk[T []byte | string](dst []byte, s T) []byte {
	dst = AppendHeader(dst, '$', len(s))
	return append(append(dst, s...), '\r', '\n')
}

// AppendInteger appends an integer reply.
func AppendInteger(dst []byte, n int) []byte { return AppendHeader(dst, ':', n) }

// AppendPushHeader appends the header of a push of n elements. Pushes exist in protocol version 3 only.
func AppendPushHeader(dst []byte, n int) []byte {
	return AppendHeader(dst, '>', n)
}

// AppendDraining appends the push that asks a client to leave: the proxy closes the connection in that time at the
// latest.
func AppendDraining(dst []byte, within time.Duration) []byte {
	dst = AppendPushHeader(dst, 2)
	dst = redcon.AppendBulkString(dst, "draining")
	return redcon.AppendInt(dst, max(within, 0).Milliseconds())
}

// AppendHeader appends the first line of a frame: its kind, such as '*' for an array, and a number, the length of what
// follows. The header of an integer is the whole frame.
func AppendHeader(dst []byte, kind byte, n int) []byte {
	switch { // most lengths have one or two digits
	case n >= 0 && n < 10:
		return append(dst, kind, byte('0'+n), '\r', '\n')
	case n >= 10 && n < 100:
		return append(dst, kind, byte('0'+n/10), byte('0'+n%10), '\r', '\n')
	}
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\r', '\n')
}
