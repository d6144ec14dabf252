package clients

import (
	"bytes"
	"strconv"
)

// Text takes a reply apart that is a text of Redis's: a bulk string, or in RESP3 a verbatim one. ok is false if it is
// anything else: an error, QUEUED.
func Text(reply []byte) (text []byte, ok bool) {
	end := bytes.IndexByte(reply, '\n')
	if end < 2 || len(reply) < end+3 || reply[0] != '$' && reply[0] != '=' {
		return nil, false
	}
	text = reply[end+1 : len(reply)-2]
	if reply[0] == '=' {
		if len(text) < len(verbatim) {
			return nil, false
		}
		text = text[len(verbatim):]
	}
	return text, true
}

const verbatim = "txt:"

// AppendText appends a text as a reply of the same kind as like.
func AppendText(dst, like, text []byte) []byte {
	n := len(text)
	if like[0] == '=' {
		n += len(verbatim)
	}
	dst = strconv.AppendInt(append(dst, like[0]), int64(n), 10)
	dst = append(dst, "\r\n"...)
	if like[0] == '=' {
		dst = append(dst, verbatim...)
	}
	return append(append(dst, text...), "\r\n"...)
}
