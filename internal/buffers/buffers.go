// Package buffers recycles large byte slices, so that megabyte values do not make garbage. Small slices are ordinary
// ones: up to Small bytes the garbage collector is the better pool.
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

// classes are the pools, four for each power of two: 40 KiB, 48 KiB, 56 KiB, 64 KiB, 80 KiB … Large. So a slice has a
// quarter more space than was asked for at most.
var classes [7 * 4]sync.Pool

// class is the pool whose slices have space for n bytes, and the size of these; -1: none.
func class(n int) (pool, size int) {
	if n <= Small || n > Large {
		return -1, n
	}
	unit := bits.Len(uint(n-1)) - 3 // of the size, in quarters of a power of two
	quarters := (n-1)>>unit + 1     // 5 to 8
	return 4*(unit+3-bits.Len(uint(Small))) + quarters - 5, quarters << unit
}

// Get returns an empty slice with space for at least n bytes.
func Get(n int) []byte {
	c, size := class(n)
	if c < 0 {
		return make([]byte, 0, n)
	}
	if p, ok := classes[c].Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return make([]byte, 0, size)
}

// Append appends b to dst, which it may free. If dst must grow beyond Small, it gets space for announced bytes at once,
// up to Large. announced is the number of bytes that are known to follow, or 0. The slice grows in proportion, so that
// many small pieces cost no more than their bytes.
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
	c, size := class(cap(b))
	if c < 0 || cap(b) != size {
		return
	}
	classes[c].Put(&b)
}

// Empty empties a buffer for the next time. It frees one that has grown beyond Small, and returns nil.
func Empty(b []byte) []byte {
	if cap(b) > Small {
		Free(b)
		return nil
	}
	return b[:0]
}
