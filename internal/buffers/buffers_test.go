package buffers

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestGetHasRoom(t *testing.T) {
	for _, n := range []int{0, 1, Small, Small + 1, 2 * Small, 2*Small + 1, Large - 1, Large, Large + 1} {
		if b := Get(n); len(b) != 0 || cap(b) < n {
			t.Errorf("Get(%d): length %d, capacity %d", n, len(b), cap(b))
		}
	}
}

func TestAppendKeepsTheBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got, want []byte
		for i := range rapid.IntRange(1, 12).Draw(t, "pieces") {
			piece := bytes.Repeat([]byte{byte('a' + i)}, rapid.IntRange(0, 3*Small).Draw(t, "size"))
			got = Append(got, piece, rapid.IntRange(0, 2*Large).Draw(t, "announced"))
			want = append(want, piece...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes differ from the %d appended", len(got), len(want))
		}
		Free(got)
	})
}

func TestAnnouncedSizeIsAllocatedOnce(t *testing.T) {
	b := Append(nil, make([]byte, Small+1), 1<<20)
	if got, want := cap(b), 1<<20; got != want {
		t.Errorf("capacity %d, want the announced %d", got, want)
	}
}

func TestManySmallPiecesAreCopiedAFewTimesEach(t *testing.T) {
	var b []byte
	piece := make([]byte, 2048)
	copied := 0
	for len(b) < 16*Large {
		if len(b)+len(piece) > cap(b) {
			copied += len(b)
		}
		b = Append(b, piece, 0)
	}
	if copied > 8*len(b) {
		t.Errorf("%d bytes copied to append %d", copied, len(b))
	}
}

func TestForeignSlicesAreNotPooled(t *testing.T) {
	Free(make([]byte, 100_000)) // not the size of a pool: Get would promise more space than it has
	if b := Get(7 << 14); cap(b) < 7<<14 {
		t.Errorf("Get returned a slice of capacity %d", cap(b))
	}
}

// BenchmarkMegabyte is a 1 MiB value gathered from pieces as they are read from a socket.
func BenchmarkMegabyte(b *testing.B) {
	piece := make([]byte, 256<<10)
	b.ReportAllocs()
	for b.Loop() {
		var dst []byte
		for range 4 {
			dst = Append(dst, piece, 1<<20)
		}
		Free(dst)
	}
}
