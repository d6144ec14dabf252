package session

import "github.com/lockproxy/lockproxy/internal/buffers"

// This file holds the bytes of a client that must wait.

// An inbox is bytes in the order of their arrival. Taking n bytes off its start costs O(n) in the long run, however
// many bytes are behind them. The zero value is empty.
type inbox struct {
	buf []byte
	off int // the first byte that has not been dropped
}

// keptInput is the capacity that an empty inbox keeps for the next time.
const keptInput = 4 << 10

// append adds b at the end. need is the number of bytes that are known to follow, or 0.
func (q *inbox) append(b []byte, need int) {
	if q.off > 0 && len(q.buf)+len(b) > cap(q.buf) {
		q.compact()
	}
	q.buf = buffers.Append(q.buf, b, need)
}

// bytes is the content. It is valid until the next call of a method that changes the inbox, and may be written to.
func (q *inbox) bytes() []byte { return q.buf[q.off:] }

// len is the number of bytes.
func (q *inbox) len() int { return len(q.buf) - q.off }

// cap is the memory that they take, in bytes.
func (q *inbox) cap() int { return cap(q.buf) }

// drop takes n bytes off the start.
func (q *inbox) drop(n int) {
	q.off += n
	switch {
	case q.off < len(q.buf):
		if q.off > q.len() { // no more is moved than has been dropped
			q.compact()
		}
	case cap(q.buf) > keptInput:
		buffers.Free(q.buf)
		*q = inbox{}
	default:
		q.buf, q.off = q.buf[:0], 0
	}
}

// compact moves the bytes to the start of a buffer that is not much too large.
func (q *inbox) compact() {
	rest := q.buf[q.off:]
	if cap(q.buf) > buffers.Small && len(rest) < cap(q.buf)/4 {
		small := append(buffers.Get(len(rest)), rest...)
		buffers.Free(q.buf)
		q.buf = small
	} else {
		q.buf = append(q.buf[:0], rest...)
	}
	q.off = 0
}

// forget drops everything. Slices of it stay valid, so a caller in the middle of one may finish.
func (q *inbox) forget() { *q = inbox{} }
