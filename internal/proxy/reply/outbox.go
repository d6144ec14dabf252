package reply

import "github.com/lockproxy/lockproxy/internal/buffers"

// An Outbox is bytes on their way to one client. One writer at a time takes them chunk by chunk. The zero value is
// empty.
type Outbox struct {
	last    []byte   // the newest bytes
	full    [][]byte // the bytes before them, each about chunkSize
	spare   []byte   // an emptied buffer for reuse
	writing bool     // a writer has what it has taken
}

// chunkSize is about the number of bytes of one write.
const chunkSize = 256 << 10

// Append adds b at the end. It does not keep b. Very many bytes become chunks, each of which is written and returned by
// itself.
func (o *Outbox) Append(b []byte) {
	for len(b) > 2*chunkSize {
		o.append(b[:chunkSize])
		b = b[chunkSize:]
	}
	o.append(b)
}

func (o *Outbox) append(b []byte) {
	switch {
	case o.last == nil:
		o.last, o.spare = o.spare, nil
	case len(o.last)+len(b) > chunkSize && len(o.last) > chunkSize/2:
		// A client that does not read makes more chunks, and nothing is copied again.
		o.full = append(o.full, o.last)
		o.last = nil
	}
	o.last = buffers.Append(o.last, b, 0)
}

// Begin takes the oldest bytes, which are the caller's until End. nil: there are none, or another goroutine is writing.
func (o *Outbox) Begin() (b []byte) {
	switch {
	case o.writing:
		return nil
	case len(o.full) > 0:
		b = o.full[0]
		o.full[0] = nil
		if o.full = o.full[1:]; len(o.full) == 0 {
			o.full = nil // a burst must not keep its memory
		}
	case len(o.last) > 0:
		b, o.last = o.last, nil
	default:
		return nil
	}
	o.writing = true
	return b
}

// End returns the bytes of Begin. keep: their buffer may be used again.
func (o *Outbox) End(b []byte, keep bool) {
	o.writing = false
	if !keep {
		return
	}
	if b = buffers.Empty(b); b != nil && o.spare == nil {
		o.spare = b
	}
}

// Empty reports whether there is nothing to take.
func (o *Outbox) Empty() bool { return len(o.full)+len(o.last) == 0 }

// Writing reports whether the bytes of Begin are being written.
func (o *Outbox) Writing() bool { return o.writing }

// Spare is the memory of the emptied buffer.
func (o *Outbox) Spare() int { return cap(o.spare) }

// Sizes are the bytes of the newest chunk, its free memory with that of the emptied buffer, and the number of older
// chunks.
func (o *Outbox) Sizes() (n, free, chunks int) {
	return len(o.last), cap(o.last) - len(o.last) + cap(o.spare), len(o.full)
}

// Forget drops all that has not been taken.
func (o *Outbox) Forget() { o.last, o.full, o.spare = nil, nil, nil }
