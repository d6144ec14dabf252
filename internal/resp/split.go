package resp

import "github.com/tidwall/redcon"

// Split appends the arguments of a whole command in array form, as found in Frame.Raw, to dst. They alias raw. It does
// not allocate if dst has enough capacity. Anything but a whole command appends nothing.
func Split(raw []byte, dst [][]byte) [][]byte {
	// ReadNextCommand overwrites its buffer from the start, so it gets the free part of dst; appending what it
	// found there to dst is then a copy onto itself.
	whole, args, _, _, err := redcon.ReadNextCommand(raw, dst[len(dst):])
	if !whole || err != nil {
		return dst
	}
	return append(dst, args...)
}
