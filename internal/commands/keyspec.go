package commands

import (
	"math"
	"slices"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// A Spec finds the keys of one command. The zero value finds none.
//
// It is Redis's own description (the key specifications in COMMAND). A specification is compiled once; finding a key
// allocates nothing.
//
// A key stands at a fixed position, behind a number of keys, or behind a word. Redis itself checks that all keys of a
// command are in one slot, so the first key is enough to find the server of a command. All keys are needed for commands
// that are split.
type Spec struct{ places []place }

// place is one specification: where to begin, and how to find keys from there.
type place struct {
	index   int    // begin here; 0: behind the word
	word    string // lower case
	from    int    // where the search for the word begins; negative: backwards, from the end
	numbers bool   // the argument at index+count says how many keys follow, the first at index+first
	count   int
	first   int
	last    int // of a range, relative to its begin; negative: from the end of the command
	step    int
	limit   int // if last is -1 and limit is above 1: only 1/limit of the arguments are keys
}

// Range is a specification for keys at fixed positions, as Redis described all commands before version 7: the first and
// the last key, and the step between keys. A negative last counts from the end.
func Range(first, last, step int) Spec {
	if first <= 0 {
		return Spec{}
	}
	if last > 0 {
		last -= first
	}
	p := place{index: first, last: last, step: max(step, 1)}
	if !p.isSane() {
		return Spec{}
	}
	return Spec{[]place{p}}
}

// Compile reads a command's list of key specifications. A specification that Redis marks as unknown is left out.
func Compile(list resp.Value) Spec {
	var s Spec
	for _, v := range list.Elems {
		if p, ok := compile(v); ok {
			s.places = append(s.places, p)
		}
	}
	return s
}

func compile(v resp.Value) (p place, ok bool) {
	begin, find := v.Field("begin_search"), v.Field("find_keys")
	spec := begin.Field("spec")
	switch string(begin.Field("type").Str) {
	case "index":
		p.index = number(spec, "index")
	case "keyword":
		p.word, p.from = lower(spec.Field("keyword").Str), number(spec, "startfrom")
	default:
		return p, false
	}
	spec = find.Field("spec")
	switch string(find.Field("type").Str) {
	case "range":
		p.last, p.step, p.limit = number(spec, "lastkey"), number(spec, "keystep"), number(spec, "limit")
	case "keynum":
		p.numbers, p.count = true, number(spec, "keynumidx")
		p.first, p.step = number(spec, "firstkey"), number(spec, "keystep")
	default:
		return p, false
	}
	p.step = max(p.step, 1)
	return p, (p.index > 0 || p.word != "") && p.isSane()
}

// mostArguments is more than any command has.
const mostArguments = 1 << 30

// isSane reports whether no index is beyond all arguments: no Redis says so.
func (p *place) isSane() bool {
	for _, n := range []int{p.index, p.count, p.first, p.step, p.limit} {
		if n < 0 || n > mostArguments {
			return false
		}
	}
	return -mostArguments <= p.last && p.last <= mostArguments && -mostArguments <= p.from && p.from <= mostArguments
}

func number(v resp.Value, name string) int { return int(v.Field(name).Int) }

func lower(b []byte) string {
	low := make([]byte, len(b))
	for i, c := range b {
		low[i] = lowered(c)
	}
	return string(low)
}

func lowered(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Fixed is the index of the command's only key, if it is the same in every command; 0: it is not, or there are more
// keys.
func (s Spec) Fixed() int {
	if len(s.places) != 1 || s.places[0].word != "" || s.places[0].numbers || s.places[0].last != 0 {
		return 0
	}
	return s.places[0].index
}

// Early reports whether the first few arguments of a command, n of them, tell which its first key is, and whether there
// are more keys.
func (s Spec) Early(n int) bool {
	return !slices.ContainsFunc(s.places, func(p place) bool {
		return p.word != "" || p.numbers || p.limit > 1 || p.index+p.step >= n
	})
}

// Keyless reports whether the command never has keys.
func (s Spec) Keyless() bool { return len(s.places) == 0 }

// First returns the index of the first key among the arguments, of which the first is the command's name; 0: it has
// none, or the arguments are such that Redis will refuse them.
func (s Spec) First(args [][]byte) int {
	for i := range s.places {
		first, last, _ := s.places[i].find(args)
		if first <= last && (len(args[first]) > 0 || i+1 == len(s.places)) { // MIGRATE has an empty key in front of KEYS
			return first
		}
	}
	return 0
}

// Several reports whether there is more than one key.
func (s Spec) Several(args [][]byte) bool {
	n := 0
	for i := range s.places {
		if first, last, step := s.places[i].find(args); first <= last {
			n += 1 + (last-first)/step
		}
	}
	return n > 1
}

// All appends the indexes of all keys.
func (s Spec) All(args [][]byte, dst []int) []int {
	for i := range s.places {
		first, last, step := s.places[i].find(args)
		for ; first <= last; first += step {
			dst = append(dst, first)
		}
	}
	return dst
}

// find returns the indexes of the first and the last key, and the step; first > last: there are none.
func (p *place) find(args [][]byte) (first, last, step int) {
	begin := p.index
	if p.word != "" {
		begin = p.search(args)
	}
	if begin <= 0 || begin >= len(args) {
		return 1, 0, 1
	}
	if p.numbers {
		if begin+p.count >= len(args) {
			return 1, 0, 1
		}
		n, ok := parse(args[begin+p.count])
		first = begin + p.first
		if !ok || n > (len(args)-1-first)/p.step+1 || first >= len(args) {
			return 1, 0, 1
		}
		return first, first + (n-1)*p.step, p.step
	}
	first = begin
	switch {
	case p.last >= 0:
		last = first + p.last
	case p.last == -1 && p.limit > 1:
		last = first + (len(args)-first)/p.limit - 1
	default:
		last = len(args) + p.last
	}
	return first, min(last, len(args)-1), p.step
}

// search returns the index behind the word; 0: it is not there.
func (p *place) search(args [][]byte) int {
	i, step := p.from, 1
	if i < 0 {
		i, step = len(args)+i, -1
	}
	for ; i > 0 && i < len(args); i += step {
		if Is(args[i], p.word) {
			return i + 1
		}
	}
	return 0
}

// Is reports whether b, in upper or lower case, is a word in lower case.
func Is(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i, c := range b {
		if lowered(c) != word[i] {
			return false
		}
	}
	return true
}

// parse reads a number of keys, a positive one. It reads as Redis does when it looks for the server of a command, by
// atoi: white space in front and text behind are no error, and of a number beyond 32 bits the lowest 32 count. Redis
// refuses such a number at the server of these keys, and answers -MOVED at others.
func parse(b []byte) (int, bool) {
	for len(b) > 0 && (b[0] == ' ' || b[0] >= '\t' && b[0] <= '\r') {
		b = b[1:]
	}
	negative := len(b) > 0 && b[0] == '-'
	if negative || len(b) > 0 && b[0] == '+' {
		b = b[1:]
	}
	var n int64
	for ; len(b) > 0 && b[0] >= '0' && b[0] <= '9'; b = b[1:] {
		digit := int64(b[0] - '0')
		if n > (math.MaxInt64-digit)/10 {
			return 0, false // the lowest 32 bits of the number that atoi keeps are those of -1 or 0
		}
		n = n*10 + digit
	}
	if negative {
		n = -n
	}
	keys := int(int32(n)) //nolint:gosec // as Redis does
	return keys, keys > 0
}
