package parts

import (
	"bytes"
	"hash/fnv"
	"slices"
	"strconv"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream/cluster"
	"lockproxy/internal/upstream/slots"
)

// A Cursor is the place of a SCAN of the whole cluster. It scans the servers one after the other, in the order of their first slots. As a number
// it has, from the top, a slot of the server (14 bits), a mark of the server (8 bits), and the server's own cursor (41 bits). All
// of it is in the number, so any proxy can go on with it.
//
// If the slot has another server when the scan goes on, the mark tells, and that server is scanned from its start. Keys may come twice then, as
// SCAN allows. None of the keys that stay at their server is left out. A key may be left out if it moves from a server that is still to come to
// one that has been scanned.
type Cursor struct {
	slot int
	mark uint8
	own  uint64
}

const (
	ownBits  = 41
	markBits = 8
)

// ReadCursor reads a cursor of a client. false: it is none, and Redis says so.
func ReadCursor(text []byte) (c Cursor, ok bool) {
	n, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil {
		return c, false
	}
	return Cursor{slot: int(n >> (ownBits + markBits)), mark: uint8(n >> ownBits), own: n & (1<<ownBits - 1)}, true
}

func (c Cursor) number() uint64 {
	return uint64(c.slot)<<(ownBits+markBits) | uint64(c.mark)<<ownBits | c.own
}

// At returns the server to scan and that server's own cursor; nil: no server is known.
func (c *Cursor) At(v *cluster.View) (n *cluster.Node, own uint64) {
	if n = v.Owner(c.slot); n == nil { // the next slot that has a server
		if c.slot, n = v.Next(c.slot, ""); n == nil {
			return nil, 0
		}
	}
	if mark := markOf(n); c.mark != mark {
		c.mark, c.own = mark, 0
	}
	return n, c.own
}

// markOf is never 0, so that only the first cursor is 0.
func markOf(n *cluster.Node) uint8 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(n.ID)) // it never fails
	return uint8(h.Sum32()%255) + 1
}

// Follow is the reply to the client: the server's reply with the cursor of the whole scan in place of the server's own.
func (c Cursor) Follow(v *cluster.View, reply []byte) []byte {
	own, rest, ok := ownCursor(reply)
	if !ok {
		return reply
	}
	if own >= 1<<ownBits {
		return resp.AppendError(nil, resp.Err, "the cursor of a server is too large")
	}
	text := []byte("0")
	if c.own = own; own > 0 || c.advance(v) {
		text = strconv.AppendUint(nil, c.number(), 10)
	}
	return append(resp.AppendBulk(resp.AppendHeader(nil, '*', 2), text), rest...)
}

// advance goes on to the next server; false: all have been scanned. These are the servers of all slots up to the present one.
func (c *Cursor) advance(v *cluster.View) bool {
	scanned := map[string]bool{}
	for slot := range slots.Count {
		n := v.Owner(slot)
		switch {
		case n == nil:
		case slot <= c.slot:
			scanned[n.ID] = true
		case !scanned[n.ID]:
			*c = Cursor{slot: slot, mark: markOf(n)}
			return true
		}
	}
	return false
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
