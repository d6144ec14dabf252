package scatter

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Cursor is the place of a SCAN of the whole cluster. It scans the servers one after the other, in the order of their
// IDs. As a number it has, from the top, a mark of the servers and their slots when the pass began (16 bits), whether
// some slots were being moved at the end of the pass before (1 bit), the number of passes before (2 bits), the position
// of the present server (10 bits), and the server's own cursor (34 bits). All of it is in the number, so any proxy can
// go on with it.
//
// A key is left out by a pass if it moves from a server that has not been scanned to one that has been. So the servers
// are asked for their slots at the beginning and at the end of a pass. If the answers differ, another pass follows. It
// has all keys whose slots stay meanwhile.
//
// While a slot is being moved its keys go from one server to the other, and the answers stay. A pass behind one that
// ended like that, with the same answers, finds the keys that have gone. A slot that is never moved to the end does not
// keep a scan from its end.
type Cursor struct {
	mark   uint16 // 0: the scan has not begun
	moving bool
	passes int
	index  int // the number of servers: the end of the pass
	own    uint64
}

const (
	ownBits    = 34
	indexBits  = 10
	passBits   = 2
	indexShift = ownBits
	passShift  = indexShift + indexBits
	moveShift  = passShift + passBits
	markShift  = moveShift + 1
)

// ReadCursor reads a cursor of a client. false: it is none, and Redis says so.
func ReadCursor(text []byte) (c Cursor, ok bool) {
	n, err := strconv.ParseUint(string(text), 10, 63)
	if err != nil {
		return c, false
	}
	c = Cursor{
		mark: uint16(n >> markShift), moving: n>>moveShift&1 == 1, passes: int(n >> passShift & (1<<passBits - 1)),
		index: int(n >> indexShift & (1<<indexBits - 1)), own: n & (1<<ownBits - 1),
	}
	if c.mark == 0 { // no number that this proxy has given
		return Cursor{}, true
	}
	return c, true
}

func (c Cursor) text() []byte {
	n := uint64(c.mark)<<markShift | uint64(c.passes)<<passShift | uint64(c.index)<<indexShift | c.own
	if c.moving {
		n |= 1 << moveShift
	}
	return strconv.AppendUint(nil, n, 10)
}

// Begins reports whether the scan begins. The servers are asked for their slots, and the first one is scanned behind
// that.
func (c Cursor) Begins() bool { return c.mark == 0 }

// At returns the server to scan and that server's own cursor; nil: all have been scanned. They are asked for their
// slots then.
func (c Cursor) At(v *topology.View) (n *topology.ClusterNode, own uint64) {
	if nodes := v.Nodes(); c.index < len(nodes) {
		return &nodes[c.index], c.own
	}
	return nil, 0
}

// Question asks a server for its slots. See readLayout.
var Question = resp.AppendCommand(nil, "CLUSTER", "NODES")

// First is the reply to the first SCAN: answers are those to Question, in the order of the servers, and behind them the
// first server's page.
func (c Cursor) First(v *topology.View, answers [][]byte) []byte {
	last := len(answers) - 1
	c.mark, _ = markOf(v, answers[:last])
	return c.Follow(answers[last])
}

// Follow is the reply to the client: the server's reply with the cursor of the whole scan in place of the server's own.
func (c Cursor) Follow(reply []byte) []byte {
	own, rest, ok := ownCursor(reply)
	if !ok {
		return reply
	}
	if own >= 1<<ownBits || c.index >= 1<<indexBits-1 {
		return resp.AppendError(nil, resp.Err, "the cursor of a server is too large")
	}
	if c.own = own; own == 0 {
		c.index++
	}
	return append(resp.AppendBulk(resp.AppendHeader(nil, '*', 2), c.text()), rest...)
}

// End is the reply at the end of a pass: a page without keys. answers are those to Question.
func (c Cursor) End(v *topology.View, answers [][]byte) []byte {
	mark, moving := markOf(v, answers)
	text := []byte("0")
	if (mark != c.mark || moving && !c.moving) && c.passes < 1<<passBits-1 {
		text = Cursor{mark: mark, moving: moving && mark == c.mark, passes: c.passes + 1}.text()
	}
	return append(resp.AppendBulk(resp.AppendHeader(nil, '*', 2), text), "*0\r\n"...)
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
