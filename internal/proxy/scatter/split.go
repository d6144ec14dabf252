package scatter

import (
	"cmp"
	"slices"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
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
	"del": {step: 1, writes: true, join: sum}, "unlink": {step: 1, writes: true, join: sum},
	"mset": {step: 2, writes: true, join: first},
}

// Divides reports whether Split may divide the command of that name, in lower case.
func Divides(name string) bool {
	_, ok := splits[name]
	return ok
}

// MostKeys is how many keys a command may have that is divided.
const MostKeys = 16384

// Exceeds reports whether a command with these arguments is refused, because it would have to be divided and has more
// than MostKeys keys.
func Exceeds(name string, args [][]byte) bool {
	step := splits[name].step
	return step > 0 && len(args)-1 > MostKeys*step && !inOneSlot(args, step)
}

// Split divides a command, by its name in lower case, whose keys are in several slots; nil: they are in one slot, the
// command cannot be split, or Redis will refuse it. The order of the keys of one slot stays.
func Split(name string, args [][]byte) ([]Part, Join) {
	how, ok := splits[name]
	if !ok || len(args) <= how.step || inOneSlot(args, how.step) {
		return nil, nil
	}
	if (len(args)-1)%how.step != 0 { // Redis would look at the slots before it counts the arguments
		return []Part{{Raw: resp.AppendCommand(nil, args[:2]...), Slot: hashslot.Of(args[1])}}, first
	}
	all, places := divide(args, how.step)
	join := how.join
	if join == nil {
		join = func(replies [][]byte) []byte { return arrange(replies, places) }
	}
	return all, unlessError(how.writes, join)
}

// key is a key of a command: its slot, and its place among the keys.
type key struct{ slot, at int }

// divide makes the parts of a command, in the order of their slots. places are the parts in which the keys are.
func divide(args [][]byte, step int) (all []Part, places []int) {
	keys := bySlot(args, step)
	n, size := 0, 0
	for i := range keys {
		if i == 0 || keys[i].slot != keys[i-1].slot {
			n++
		}
	}
	for _, arg := range args[1:] {
		size += len(arg) + overhead
	}
	raw := make([]byte, 0, size+n*(len(args[0])+2*overhead))
	all, places = make([]Part, 0, n), make([]int, len(keys))
	for len(keys) > 0 {
		same := 1
		for same < len(keys) && keys[same].slot == keys[0].slot {
			same++
		}
		begin := len(raw)
		raw = resp.AppendBulk(resp.AppendHeader(raw, '*', 1+same*step), args[0])
		for _, k := range keys[:same] {
			places[k.at] = len(all)
			for _, arg := range args[1+k.at*step : 1+(k.at+1)*step] {
				raw = resp.AppendBulk(raw, arg)
			}
		}
		all = append(all, Part{Raw: raw[begin:len(raw):len(raw)], Slot: keys[0].slot})
		keys = keys[same:]
	}
	return all, places
}

// bySlot are the keys in the order of their slots, and in their own order within a slot.
func bySlot(args [][]byte, step int) []key {
	keys := make([]key, (len(args)-1)/step)
	for i := range keys {
		keys[i] = key{hashslot.Of(args[1+i*step]), i}
	}
	if len(keys) < manyKeys {
		slices.SortFunc(keys, func(a, b key) int { return cmp.Or(a.slot-b.slot, a.at-b.at) })
		return keys
	}
	return counted(keys)
}

// manyKeys are counted, not compared, which takes less time.
const manyKeys = 2048

func counted(keys []key) []key {
	var begin [hashslot.Count + 1]int // of the keys of a slot
	for _, k := range keys {
		begin[k.slot+1]++
	}
	for slot := range hashslot.Count {
		begin[slot+1] += begin[slot]
	}
	sorted := make([]key, len(keys))
	for _, k := range keys {
		sorted[begin[k.slot]] = k
		begin[k.slot]++
	}
	return sorted
}

// overhead is about the number of bytes of the header and the end of an argument.
const overhead = 8

func inOneSlot(args [][]byte, step int) bool {
	slot := hashslot.Of(args[1])
	for i := 1 + step; i < len(args); i += step {
		if hashslot.Of(args[i]) != slot {
			return false
		}
	}
	return true
}

// arrange puts the values into the order of the keys. The values of one part are in their order already.
func arrange(replies [][]byte, places []int) []byte {
	left := make([][]byte, len(replies)) // the values that have not been placed
	size := 0
	for i, r := range replies {
		_, body, ok := array(r)
		if !ok {
			return r
		}
		left[i] = body
		size += len(r)
	}
	joined := resp.AppendHeader(make([]byte, 0, size+16), '*', len(places))
	var scan resp.Scanner
	for _, p := range places {
		n, whole, err := scan.Scan(left[p])
		if err != nil || !whole {
			return replies[p]
		}
		joined = append(joined, left[p][:n]...)
		left[p] = left[p][n:]
	}
	return joined
}
