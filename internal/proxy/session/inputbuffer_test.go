package session

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/buffers"
)

func TestBytesComeOutAsTheyWentIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q inbox
		var want []byte
		next := byte(0)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			if rapid.Bool().Draw(t, "append") {
				b := make([]byte, rapid.SampledFrom([]int{1, 10, 1000, buffers.Small, 5 * buffers.Small}).Draw(t, "size"))
				for i := range b {
					b[i] = next
					next++
				}
				q.append(b, 0)
				want = append(want, b...)
			} else {
				n := rapid.IntRange(0, len(want)).Draw(t, "drop")
				q.drop(n)
				want = want[n:]
			}
			if q.len() != len(want) || !bytes.Equal(q.bytes(), want) {
				t.Fatalf("%d bytes, want %d, or others", q.len(), len(want))
			}
		}
	})
}

// Many small commands behind each other are taken off one by one, as when each waits for a lock.
func TestTakingSmallPiecesIsLinear(t *testing.T) {
	var q inbox
	q.append(make([]byte, 4<<20), 0)
	moved, off := 0, q.off
	for q.len() > 0 {
		q.drop(min(16, q.len()))
		if q.off < off {
			moved += q.len()
		}
		off = q.off
	}
	if moved > 8<<20 {
		t.Errorf("%d bytes were moved", moved)
	}
}

func TestEmptyInboxKeepsLittle(t *testing.T) {
	var q inbox
	q.append(make([]byte, 1<<20), 0)
	q.drop(1 << 20)
	if q.cap() > keptInput {
		t.Errorf("%d bytes", q.cap())
	}
}

func TestLargeBufferIsGivenUpBeforeItIsEmpty(t *testing.T) {
	var q inbox
	q.append(make([]byte, 4<<20), 0)
	q.drop(4<<20 - 100)
	if q.cap() > 64<<10 {
		t.Errorf("%d bytes are kept for %d", q.cap(), q.len())
	}
}
