package parts

import (
	"bytes"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/cluster"
)

// A Cursor is the place of a SCAN of the whole cluster. It scans the servers one after the other, in the order of their IDs. As a number it has, from
// the top, a mark of the set of servers (8 bits), the position of the present server among them (14 bits), and the server's own cursor (41
// bits). All of it is in the number, so any proxy can go on with it.
//
// Slots may move during a scan. If the set of servers changes, by a failover for example, the scan begins again: a server's cursor means nothing to
// its replica. Keys may come twice then, as SCAN allows, but none of those that stay at their servers is left out.
type Cursor struct {
	mark  uint8
	index int
	own   uint64
}

const (
	ownBits   = 41
	indexBits = 14
)

// ReadCursor reads a cursor of a client. false: it is none, and Redis says so.
func ReadCursor(text []byte) (c Cursor, ok bool) {
	n, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil {
		return c, false
	}
	return Cursor{mark: uint8(n >> (ownBits + indexBits)), index: int(n >> ownBits & (1<<indexBits - 1)), own: n & (1<<ownBits - 1)}, true
}

func (c Cursor) number() uint64 {
	return uint64(c.mark)<<(ownBits+indexBits) | uint64(c.index)<<ownBits | c.own
}

// At returns the server to scan and that server's own cursor; nil: no server is known.
func (c *Cursor) At(v *cluster.View) (n *cluster.Node, own uint64) {
	nodes := v.Nodes()
	if mark := markOf(nodes); c.mark != mark || c.index >= len(nodes) {
		*c = Cursor{mark: mark}
	}
	if len(nodes) == 0 {
		return nil, 0
	}
	return &nodes[c.index], c.own
}

// markOf is never 0, so that only the first cursor is 0.
func markOf(nodes []cluster.Node) uint8 {
	h := fnv.New32a()
	for _, n := range nodes {
		_, _ = h.Write([]byte(n.ID)) // it never fails
	}
	return uint8(h.Sum32()%255) + 1
}

// Follow is the reply to the client: the server's reply with the cursor of the whole scan in place of the server's own. v is the view of At.
func (c Cursor) Follow(v *cluster.View, reply []byte) []byte {
	own, rest, ok := ownCursor(reply)
	if !ok {
		return reply
	}
	if own >= 1<<ownBits {
		return resp.AppendError(nil, resp.Err, "the cursor of a server is too large")
	}
	text := []byte("0")
	if c.own = own; own == 0 {
		c.index++
	}
	if own > 0 || c.index < len(v.Nodes()) {
		text = strconv.AppendUint(nil, c.number(), 10)
	}
	return append(resp.AppendBulk(resp.AppendHeader(nil, '*', 2), text), rest...)
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
