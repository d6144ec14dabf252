package resp

import (
	"bytes"
	"slices"

	"github.com/tidwall/redcon"
)

// FirstArgs appends the first arguments of a command in array form, which need not have come in whole, to dst: n of
// them at most. They alias raw, whose headers have been checked by a Guard.
func FirstArgs(raw []byte, dst [][]byte, n int) [][]byte {
	args, n := dst, len(dst)+n
	for rest := afterLine(raw); len(args) < n; {
		body := afterLine(rest)
		size, ok := parseLength(bytes.TrimSuffix(rest[min(1, len(rest)):len(rest)-len(body)], []byte("\r\n")))
		if !ok || size < 0 || int64(len(body)) < size+2 {
			break
		}
		args, rest = append(args, body[:size]), body[size+2:]
	}
	return args
}

// Count is the number of arguments of a command in array form, of which at least the first line has come.
func Count(raw []byte) int {
	n, ok := parseLength(bytes.TrimSuffix(raw[min(1, len(raw)):len(raw)-len(afterLine(raw))], []byte("\r\n")))
	if !ok || n < 0 {
		return 0
	}
	return int(n)
}

// Elements cuts a whole array, set or map into its elements, which alias it. false: it is none of these, or null.
func Elements(reply []byte) (all [][]byte, ok bool) {
	switch kind := Kind(reply[0]); {
	case kind != Array && kind != Set && kind != Map, reply[1] == '-':
		return nil, false
	}
	var scan Scanner
	for rest := afterLine(reply); len(rest) > 0; {
		n, whole, err := scan.Scan(rest)
		if err != nil || !whole {
			return nil, false
		}
		all, rest = append(all, rest[:n:n]), rest[n:]
	}
	return all, true
}

// afterLine is what follows the first line; empty: the line has not ended.
func afterLine(b []byte) []byte {
	_, rest, _ := bytes.Cut(b, []byte("\n"))
	return rest
}

// Split appends the arguments of a whole command in array form, as found in Frame.Raw, to dst. They alias raw. It does
// not allocate if dst has enough capacity. Anything but a whole command appends nothing.
func Split(raw []byte, dst [][]byte) [][]byte {
	if n := min(Count(raw), len(raw)/4); n > cap(dst)-len(dst) { // it may have a million arguments
		dst = slices.Grow(dst, n)
	}
	// ReadNextCommand overwrites its buffer from the start, so it gets the free part of dst; appending what it
	// found there to dst is then a copy onto itself.
	whole, args, _, _, err := redcon.ReadNextCommand(raw, dst[len(dst):])
	if !whole || err != nil {
		return dst
	}
	return append(dst, args...)
}
