package stream

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/buffers"
)

// spaceOf is the memory of all requests that have not been taken.
func spaceOf(s *Stream) int {
	n := cap(s.out)
	for _, c := range s.full {
		n += cap(c.bytes)
	}
	return n
}

func TestRequestsThatWaitAreNotCopiedAsTheyGrow(t *testing.T) {
	for _, size := range []int{100, 3000, buffers.Small, 65 << 10, 130 << 10, 200 << 10, 1 << 20, 3<<20 + 100, 2 * buffers.Large} {
		s := New()
		request := bytes.Repeat([]byte{'x'}, size)
		total := 0
		var first *byte
		for total < 32<<20 {
			if err := s.Append(request, sink{}, 0, 1); err != nil {
				t.Fatal(err)
			}
			total += size
			if len(s.full) > 0 && first == nil {
				first = &s.full[0].bytes[0]
			}
		}
		if len(s.full) == 0 || first != &s.full[0].bytes[0] {
			t.Errorf("requests of %d bytes were copied", size)
		}
		if got, most := spaceOf(s), total+total/3+2*chunkSize; got > most {
			t.Errorf("requests of %d bytes: %d bytes take %d", size, total, got)
		}
	}
}

// However many chunks the requests fill, they are written once and in order, and a connection that ends tells the taken
// from the others.
func TestChunksKeepTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := new([]string)
		receivers := []*recorder{{name: "a", log: log, keeps: true}, {name: "b", log: log, keeps: true}}
		s := New()
		s.Open()
		var want, got []byte
		answered := 0
		for i := range rapid.IntRange(1, 40).Draw(t, "events") {
			switch rapid.SampledFrom([]string{"append", "append", "take", "unwritten"}).Draw(t, "event") {
			case "append":
				n := rapid.IntRange(1, 3).Draw(t, "requests")
				size := rapid.SampledFrom([]int{1, 1000, 100 << 10, 300 << 10, 600 << 10}).Draw(t, "size")
				request := bytes.Repeat([]byte{byte('a' + i)}, size)
				if err := s.Append(request, receivers[rapid.IntRange(0, 1).Draw(t, "receiver")], 0, n); err != nil {
					t.Fatal(err)
				}
				want = append(want, request...)
			case "take":
				got = append(got, s.Take(nil)...)
			case "unwritten": // the connection ends, and what was taken is answered
				answer(t, s, &answered)
				if b := s.Take(nil); b != nil {
					s.Unwritten(b)
				}
				s.Reconnect(errors.New("x"))
				s.Open()
				answered = 0
			}
			if pending := len(want) - len(got); s.waiting() != pending {
				t.Fatalf("%d bytes wait, want %d", s.waiting(), pending)
			}
		}
		for range 100 {
			got = append(got, s.Take(nil)...)
			answer(t, s, &answered)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes were taken, want %d, or others", len(got), len(want))
		}
		if n := s.Outstanding(); n != 0 {
			t.Errorf("%d requests are outstanding", n)
		}
		for _, line := range *log {
			if bytes.Contains([]byte(line), []byte("lost")) {
				t.Errorf("a receiver was told: %s", line)
			}
		}
	})
}

// answer gives the stream a reply to each request that has been taken. answered is the number of those before.
func answer(t *rapid.T, s *Stream, answered *int) {
	for ; *answered < int(s.sent); *answered++ {
		feed(t, s, "+\r\n")
	}
}
