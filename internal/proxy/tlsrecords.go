package proxy

import "encoding/binary"

// recordHead is the number of bytes in front of a record. The last two of them are its length.
const recordHead = 5

// tlsRecords follows the borders of records in a stream of bytes. The zero value is in front of the first one.
type tlsRecords struct {
	head [recordHead]byte
	got  int // bytes of the present record's head; recordHead: all
	left int // bytes that its body still misses
}

// missing is the number of bytes up to the end of the present record, or of its head.
func (r *tlsRecords) missing() int {
	if r.got < recordHead {
		return recordHead - r.got
	}
	return r.left
}

// pass goes over bytes of the stream, and returns the number of records of which they have the end, or the last bytes
// so far.
func (r *tlsRecords) pass(b []byte) (n int) {
	for len(b) > 0 {
		if r.got < recordHead {
			read := copy(r.head[r.got:], b)
			r.got += read
			b = b[read:]
			if r.got == recordHead {
				r.left = int(binary.BigEndian.Uint16(r.head[recordHead-2:]))
			}
		} else {
			read := min(r.left, len(b))
			r.left -= read
			b = b[read:]
		}
		if r.got == recordHead && r.left == 0 {
			r.got = 0
			n++
		}
	}
	if r.got > 0 {
		n++
	}
	return n
}
