package scatter

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// A Join makes one reply of the whole replies of all parts, in the order of the parts. There is at least one.
type Join func(replies [][]byte) []byte

// unlessError is join if no reply is an error. If a command that writes has failed at some servers only, the reply says
// so.
func unlessError(writes bool, join Join) Join {
	return func(replies [][]byte) []byte {
		failed, words := 0, []byte(nil)
		for _, r := range replies {
			if resp.IsError(r) {
				if failed++; words == nil {
					words = r
				}
			}
		}
		switch {
		case failed == 0:
			return join(replies)
		case writes && failed < len(replies):
			return resp.AppendRawError(nil, "CLUSTERDOWN partly carried out: "+string(bytes.TrimSpace(words[1:])))
		}
		return words
	}
}

// first is the first reply: all servers answer alike.
func first(replies [][]byte) []byte { return replies[0] }

// sum adds integers.
func sum(replies [][]byte) []byte {
	total := 0
	for _, r := range replies {
		n, ok := integer(r)
		if !ok {
			return r
		}
		total += n
	}
	return resp.AppendInteger(nil, total)
}

func integer(reply []byte) (int, bool) {
	if reply[0] != ':' {
		return 0, false
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(reply[1:])))
	return n, err == nil
}

// concatenate puts the elements of arrays behind each other.
func concatenate(replies [][]byte) []byte {
	n, size := 0, 0
	for _, r := range replies {
		count, _, ok := array(r)
		if !ok {
			return r
		}
		n += count
		size += len(r)
	}
	joined := resp.AppendHeader(make([]byte, 0, size+16), replies[0][0], n)
	for _, r := range replies {
		_, body, _ := array(r)
		joined = append(joined, body...)
	}
	return joined
}

// array returns the number of elements of an array or a set, and their bytes.
func array(reply []byte) (n int, body []byte, ok bool) {
	end := bytes.IndexByte(reply, '\n')
	if reply[0] != '*' && reply[0] != '~' || end < 2 {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(reply[1 : end-1]))
	return n, reply[end+1:], err == nil && n >= 0
}

// inAll joins arrays of one length whose elements are 0 or 1: an element is 1 if it is so everywhere.
func inAll(replies [][]byte) []byte {
	joined, ok := resp.Elements(replies[0])
	if !ok {
		return replies[0]
	}
	for _, r := range replies[1:] {
		all, ok := resp.Elements(r)
		if !ok || len(all) != len(joined) {
			return r
		}
		for i, e := range all {
			if string(e) == ":0\r\n" {
				joined[i] = e
			}
		}
	}
	return append(resp.AppendHeader(nil, replies[0][0], len(joined)), bytes.Join(joined, nil)...)
}

// anyOf is the first reply that is no error; else the first error that differs from NOTBUSY, by which a server says
// that it has nothing to end.
func anyOf(replies [][]byte) []byte {
	best := replies[0]
	for _, r := range replies {
		if !resp.IsError(r) {
			return r
		}
		if bytes.HasPrefix(best, []byte("-NOTBUSY")) {
			best = r
		}
	}
	return best
}

// some is one of the replies that are not null, by chance.
func some(pick func(n int) int) Join {
	return func(replies [][]byte) []byte {
		var found [][]byte
		for _, r := range replies {
			if !isNull(r) {
				found = append(found, r)
			}
		}
		if len(found) == 0 {
			return replies[0]
		}
		return found[pick(len(found))]
	}
}

func isNull(reply []byte) bool { return reply[0] == '_' || bytes.HasPrefix(reply, []byte("$-1")) }
