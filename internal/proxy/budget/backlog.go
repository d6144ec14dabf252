package budget

// Backlog estimates the bytes that one client has appended to a shared connection and that are not written yet.
// Positions count the bytes of all of them since the connection began. The zero value is ready.
//
// It keeps two marks. The bytes before a mark are written when the connection has written up to it. The estimate is
// never too low.
type Backlog struct {
	old, recent       int   // appended up to the first mark, and since
	oldEnd, recentEnd int64 // the marks
}

// Add notes n bytes that end at position end, when the connection has written everything before written.
func (b *Backlog) Add(n int, end, written int64) {
	b.Settle(written)
	if b.old == 0 {
		b.old, b.oldEnd = n, end
		return
	}
	b.recent += n
	b.recentEnd = end
}

// Settle subtracts the bytes that the connection has written. They end at written.
func (b *Backlog) Settle(written int64) {
	if b.old > 0 && written >= b.oldEnd {
		b.old, b.oldEnd = b.recent, b.recentEnd
		b.recent = 0
	}
	if b.old > 0 && written >= b.oldEnd {
		b.old = 0
	}
}

// Bytes is the estimate.
func (b *Backlog) Bytes() int { return b.old + b.recent }
