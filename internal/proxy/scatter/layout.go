package scatter

import (
	"hash"
	"hash/fnv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// markOf is a mark, never 0, of the servers and the slots that each has by its own answer to Question. moving: some
// slots are being moved. If a server does not answer, or may not, the mark is that of the view.
func markOf(v *topology.View, answers [][]byte) (mark uint16, moving bool) {
	h := fnv.New32a()
	for _, n := range v.Nodes() {
		write(h, n.ID)
	}
	for _, answer := range answers {
		layout, moves, ok := readLayout(answer)
		if !ok {
			return markOfView(v), false
		}
		write(h, layout)
		moving = moving || moves
	}
	return short(h.Sum32()), moving
}

// readLayout reads what a server says of itself: its config epoch, which grows when slots come, and its slots.
func readLayout(answer []byte) (layout string, moving, ok bool) {
	v, _, err := resp.Decode(answer)
	if err != nil || v.IsError() {
		return "", false, false
	}
	for line := range strings.Lines(strings.TrimPrefix(string(v.Str), "txt:")) {
		fields := strings.Fields(line) // id, address, flags, primary, ping, pong, config epoch, link, slots
		if len(fields) < 8 || !strings.Contains(fields[2], "myself") {
			continue
		}
		list := strings.Join(fields[8:], " ")
		return fields[0] + " " + fields[3] + " " + fields[6] + " " + list, strings.Contains(list, "["), true
	}
	return "", false, false
}

func markOfView(v *topology.View) uint16 {
	h := fnv.New32a()
	for slot := range hashslot.Count {
		if n := v.Owner(slot); n != nil {
			write(h, n.ID)
		}
	}
	return short(h.Sum32())
}

func write(h hash.Hash32, text string) {
	_, _ = h.Write([]byte(text)) // it never fails
	_, _ = h.Write([]byte{0})
}

func short(sum uint32) uint16 { return uint16(sum%(1<<16-1)) + 1 }
