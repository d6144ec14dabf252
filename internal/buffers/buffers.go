// Package buffers recycles large byte slices, so that megabyte values do not make garbage. Small slices are ordinary ones:
// up to Small bytes the garbage collector is the better pool.
//
//	dst = buffers.Append(dst, b, announced) ─▶ … ─▶ buffers.Free(dst)
//
// A slice belongs to one owner at a time. After Free, its owner uses neither the slice nor any part of it.
package buffers

import (
	"math/bits"
	"sync"
)

const (
	// Small is the largest slice that is left to the garbage collector.
	Small = 32 << 10
	// Large is the largest slice that is kept for reuse. Values beyond it are streamed, or rare.
	Large = 4 << 20
)

// classes are the pools, by power of two: 64 KiB, 128 KiB … Large.
var classes [7]sync.Pool

// class is the pool whose slices have space for n bytes; -1: none.
func class(n int) int {
	if n <= Small || n > Large {
		return -1
	}
	return bits.Len(uint(n-1)) - bits.Len(uint(Small))
}

// Get returns an empty slice with space for at least n bytes.
func Get(n int) []byte {
	c := class(n)
	if c < 0 {
		return make([]byte, 0, n)
	}
	if p, ok := classes[c].Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return make([]byte, 0, Small<<(c+1))
}

// Append appends b to dst, which it may free. If dst must grow beyond Small, it gets space for announced bytes at once, up to
// Large. announced is the number of bytes that are known to follow, or 0. The slice grows in proportion, so that many small pieces
// cost no more than their bytes.
func Append(dst, b []byte, announced int) []byte {
	n := len(dst) + len(b)
	if n <= cap(dst) || n <= Small {
		return append(dst, b...)
	}
	space := min(2*cap(dst), Large)
	if n > Large {
		space = n + n/4
	}
	grown := Get(max(n, min(announced, Large), space))
	grown = append(append(grown, dst...), b...)
	Free(dst)
	return grown
}

// Free returns a slice to its pool. Small slices, and slices without a pool, are left to the garbage collector.
func Free(b []byte) {
	c := class(cap(b))
	if c < 0 || cap(b) != Small<<(c+1) {
		return
	}
	classes[c].Put(&b)
}

// Kept is how large a buffer may be that is kept for the next time by the owner that has emptied it.
const Kept = 32 << 10

// Empty empties a buffer for the next time. It frees one that has grown beyond Kept, and returns nil.
func Empty(b []byte) []byte {
	if cap(b) > Kept {
		Free(b)
		return nil
	}
	return b[:0]
}
