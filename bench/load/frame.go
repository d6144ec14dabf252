package load

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// maxLine bounds the first line of a reply; longer ones are not replies.
const maxLine = 64 << 10

// errPartial says that the frame goes on behind the bytes at hand.
var errPartial = errors.New("partial frame")

// frame measures the reply at the start of b. head is its first line without the line end. n may lie beyond len(b) for
// a bulk string, of which nothing but the length is of interest here.
func frame(b []byte) (head []byte, n int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 1 {
		if len(b) > maxLine {
			return nil, 0, fmt.Errorf("no line end in %d bytes of reply", len(b))
		}
		return nil, 0, errPartial
	}
	head, n = b[:end-1], end+1
	switch head[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return head, n, nil
	case '$', '=', '!':
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil {
			return nil, 0, fmt.Errorf("reply %.40q: %w", head, err)
		}
		if size < 0 {
			return head, n, nil
		}
		return head, n + size + 2, nil
	case '*', '~', '>', '%':
		count, err := strconv.Atoi(string(head[1:]))
		if err != nil {
			return nil, 0, fmt.Errorf("reply %.40q: %w", head, err)
		}
		if head[0] == '%' {
			count *= 2
		}
		for range count {
			if n > len(b) {
				return nil, 0, errPartial
			}
			_, m, err := frame(b[n:])
			if err != nil {
				return nil, 0, err
			}
			n += m
		}
		if n > len(b) {
			return nil, 0, errPartial
		}
		return head, n, nil
	}
	return nil, 0, fmt.Errorf("not a reply: %.40q", head)
}

// AppendCommand appends a command in the form that clients send.
func AppendCommand(dst []byte, args ...string) []byte {
	dst = append(dst, '*')
	dst = strconv.AppendInt(dst, int64(len(args)), 10)
	dst = append(dst, '\r', '\n')
	for _, arg := range args {
		dst = append(dst, '$')
		dst = strconv.AppendInt(dst, int64(len(arg)), 10)
		dst = append(dst, '\r', '\n')
		dst = append(dst, arg...)
		dst = append(dst, '\r', '\n')
	}
	return dst
}

// Command is one command in the form that clients send.
func Command(args ...string) []byte { return AppendCommand(nil, args...) }
