package reply

import (
	"bytes"
	"testing"
)

func TestBytesComeOutInOrder(t *testing.T) {
	var o Outbox
	var want, got []byte
	for i := range 100 {
		piece := bytes.Repeat([]byte{byte(i)}, 1+i*997)
		o.Append(piece)
		want = append(want, piece...)
		if i%7 == 0 {
			b := o.Begin()
			got = append(got, b...)
			if o.Begin() != nil {
				t.Fatal("two writers at once")
			}
			o.End(b, true)
		}
	}
	for b := o.Begin(); b != nil; b = o.Begin() {
		if len(b) > 2*chunkSize {
			t.Errorf("a chunk of %d bytes", len(b))
		}
		got = append(got, b...)
		o.End(b, true)
	}
	if !bytes.Equal(got, want) || !o.Empty() {
		t.Errorf("%d bytes of %d", len(got), len(want))
	}
}

func TestAnEmptyPieceHidesNoBytes(t *testing.T) {
	var o Outbox
	o.Append(make([]byte, chunkSize+1))
	if o.Append(nil); o.Empty() {
		t.Error("the bytes before it are not there")
	}
}

func TestSmallBufferIsUsedAgain(t *testing.T) {
	var o Outbox
	piece := make([]byte, 100)
	o.Append(piece)
	o.End(o.Begin(), true)
	if n := testing.AllocsPerRun(10, func() {
		o.Append(piece)
		o.End(o.Begin(), true)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
