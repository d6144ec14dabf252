package parts

import (
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/slots"
)

// A Part is the share of one slot in a command.
type Part struct {
	Raw  []byte // a whole command in array form
	Slot int    // of its keys
}

// splits are the commands that can be split: their effects on different keys do not depend on each other.
var splits = map[string]struct {
	step   int // arguments for each key
	writes bool
	join   Join // nil: by the positions of the keys
}{
	"mget": {step: 1}, "exists": {step: 1, join: sum}, "touch": {step: 1, join: sum},
	"del": {step: 1, writes: true, join: sum}, "unlink": {step: 1, writes: true, join: sum}, "mset": {step: 2, writes: true, join: first},
}

// Split divides a command, by its name in lower case, whose keys are in several slots; nil: they are in one slot, the command cannot be split, or
// Redis will refuse it. The order of the keys of one slot stays.
func Split(name string, args [][]byte) ([]Part, Join) {
	how, ok := splits[name]
	if !ok || len(args) <= how.step || inOneSlot(args, how.step) {
		return nil, nil
	}
	if (len(args)-1)%how.step != 0 { // Redis would look at the slots before it counts the arguments
		return []Part{{Raw: resp.AppendCommand(nil, args[:2]...), Slot: slots.Of(args[1])}}, first
	}
	var groups [][][]byte // the arguments of each part
	var all []Part
	index := map[int]int{} // of the part of a slot
	var places []place     // of each key, in order
	for i := 1; i < len(args); i += how.step {
		slot := slots.Of(args[i])
		g, known := index[slot]
		if !known {
			g = len(groups)
			index[slot] = g
			groups, all = append(groups, [][]byte{args[0]}), append(all, Part{Slot: slot})
		}
		places = append(places, place{g, (len(groups[g]) - 1) / how.step})
		groups[g] = append(groups[g], args[i:i+how.step]...)
	}
	for i, g := range groups {
		all[i].Raw = resp.AppendCommand(nil, g...)
	}
	join := how.join
	if join == nil {
		join = func(replies [][]byte) []byte { return arrange(replies, places) }
	}
	return all, unlessError(how.writes, join)
}

func inOneSlot(args [][]byte, step int) bool {
	slot := slots.Of(args[1])
	for i := 1 + step; i < len(args); i += step {
		if slots.Of(args[i]) != slot {
			return false
		}
	}
	return true
}

// place is where the value of a key is: which part has it, and at which position.
type place struct{ part, at int }

// arrange puts the values into the order of the keys.
func arrange(replies [][]byte, places []place) []byte {
	values := make([][][]byte, len(replies))
	size := 0
	for i, r := range replies {
		all, ok := elements(r)
		if !ok {
			return r
		}
		values[i] = all
		size += len(r)
	}
	joined := resp.AppendHeader(make([]byte, 0, size+16), '*', len(places))
	for _, p := range places {
		if p.at >= len(values[p.part]) {
			return replies[p.part]
		}
		joined = append(joined, values[p.part][p.at]...)
	}
	return joined
}
