package scatter

import (
	"bytes"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Cursor is the place of a SCAN of the whole cluster. It scans the servers one after the other, in the order of their
// IDs. As a number it has, from the top, a mark of the servers (8 bits), the position of the present server (8 bits),
// and the server's own cursor (37 bits). All of it is in the number, so any proxy can go on with it. Some clients keep
// a cursor as a floating-point number, which is exact below 2^53. Redis from 7.4 on has the slot in the lowest 14 bits
// of its own cursor, so 23 bits are left for a slot: 8 million keys.
//
// A position means something among the same servers only. So a scan begins again if a server has joined, left, or been
// replaced. A key is left out if it moves from a server that has not been scanned to one that has been.
type Cursor struct {
	mark  uint8
	index int
	own   uint64
}

const (
	ownBits    = 37
	indexBits  = 8
	indexShift = ownBits
	markShift  = indexShift + indexBits
)

// ReadCursor reads a cursor of a client in a view with servers. false: it is none, and Redis says so.
func ReadCursor(text []byte, v *topology.View) (c Cursor, ok bool) {
	n, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil {
		return c, false
	}
	c = Cursor{mark: markOf(v), index: int(n >> indexShift & (1<<indexBits - 1)), own: n & (1<<ownBits - 1)}
	if n>>markShift != uint64(c.mark) || c.index >= len(v.Nodes()) {
		c = Cursor{mark: c.mark}
	}
	return c, true
}

// markOf is a mark, never 0, of the servers of a view.
func markOf(v *topology.View) uint8 {
	h := fnv.New32a()
	for _, n := range v.Nodes() {
		_, _ = h.Write([]byte(n.ID + "\n")) // it never fails
	}
	return uint8(h.Sum32()%(1<<8-1)) + 1
}

// At returns the server to scan and that server's own cursor.
func (c Cursor) At(v *topology.View) (n topology.ClusterNode, own uint64) {
	return v.Nodes()[c.index], c.own
}

// Follow is the reply to the client: the server's reply with the cursor of the whole scan in place of the server's own.
func (c Cursor) Follow(v *topology.View, reply []byte) []byte {
	own, rest, ok := ownCursor(reply)
	if !ok {
		return reply
	}
	if own >= 1<<ownBits || len(v.Nodes()) > 1<<indexBits {
		return resp.AppendError(nil, resp.Err, "the cursor of a server is too large")
	}
	if c.own = own; own == 0 {
		c.index++
	}
	n := uint64(c.mark)<<markShift | uint64(c.index)<<indexShift | c.own
	if c.index == len(v.Nodes()) {
		n = 0
	}
	return append(resp.AppendBulk(resp.AppendHeader(nil, '*', 2), strconv.AppendUint(nil, n, 10)), rest...)
}

// ownCursor reads the cursor in a reply to SCAN, and returns the bytes behind it.
func ownCursor(reply []byte) (own uint64, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(reply, []byte("*2\r\n$"))
	if !ok {
		return 0, nil, false
	}
	_, rest, _ = bytes.Cut(rest, []byte("\r\n"))
	text, rest, _ := bytes.Cut(rest, []byte("\r\n"))
	own, err := strconv.ParseUint(string(text), 10, 64)
	return own, rest, err == nil
}

// WithCursor is the SCAN of these arguments for one server.
func WithCursor(args [][]byte, own uint64) []byte {
	args = slices.Clone(args)
	args[1] = strconv.AppendUint(nil, own, 10)
	return resp.AppendCommand(nil, args...)
}
