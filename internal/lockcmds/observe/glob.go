package observe

// Pattern is a compiled pattern. It may be used by several goroutines.
//
// It matches as Redis's KEYS and SCAN do, at a cost that grows with the product of the lengths and no faster. A library
// with the classes of Redis and this bound is not known: tidwall/match has no classes.
//
// A pattern becomes an automaton with one state for each of its characters. A match takes one step for each byte of the
// name, and a step moves all states at once, 64 to a word. There is no backtracking: a name of n bytes against a
// pattern of m costs n × m/64 operations at most, however many stars the pattern has. A backtracking matcher takes
// exponential time.
//
//	?      one byte
//	*      any bytes, or none
//	[abc]  one of these bytes
//	[a-c]  one byte of this range
//	[^a]   any other byte
//	\x     x itself
type Pattern struct {
	words int           // of a set of states
	next  [256][]uint64 // by byte: the states that it leads out of, to the one behind
	stays []uint64      // states that every byte leads back to: a star stands there
	final int           // the state behind the last character
	all   bool          // the pattern matches everything
}

// Compile never fails: as in Redis a bracket that is not closed ends with the pattern.
func Compile(pattern string) *Pattern {
	p := &Pattern{words: (len(pattern) + 64) / 64}
	p.stays = make([]uint64, p.words)
	table := make([]uint64, 256*p.words)
	for c := range p.next {
		p.next[c] = table[c*p.words : (c+1)*p.words]
	}
	for rest := pattern; rest != ""; {
		if rest[0] == '*' {
			set(p.stays, p.final)
			rest = rest[1:]
			continue
		}
		var one class
		one, rest = parse(rest)
		for c := range p.next {
			if one.has(byte(c)) {
				set(p.next[c], p.final)
			}
		}
		p.final++
	}
	p.all = p.final == 0 && pattern != ""
	return p
}

// Match reports whether the whole name matches.
func (p *Pattern) Match(name string) bool {
	if p.all {
		return true
	}
	words := min(p.words, p.final/64+1)
	now := make([]uint64, words) // the states that the bytes so far lead to
	now[0] = 1
	for i := range len(name) {
		next, alive := p.next[name[i]], uint64(0)
		carry := uint64(0)
		for w := range words {
			moved := now[w] & next[w]
			now[w] = moved<<1 | carry | now[w]&p.stays[w]
			carry = moved >> 63
			alive |= now[w]
		}
		if alive == 0 {
			return false
		}
	}
	return now[p.final/64]&(1<<(p.final%64)) != 0
}

func set(states []uint64, i int) { states[i/64] |= 1 << (i % 64) }

// class is a set of bytes.
type class [4]uint64

func (c *class) has(b byte) bool { return c[b/64]&(1<<(b%64)) != 0 }

func (c *class) add(from, to byte) {
	for b := int(from); b <= int(to); b++ {
		c[b/64] |= 1 << (b % 64)
	}
}

// parse takes what stands for one byte off the pattern.
func parse(pattern string) (one class, rest string) {
	switch pattern[0] {
	case '?':
		one.add(0, 255)
		return one, pattern[1:]
	case '[':
		return bracket(pattern[1:])
	case '\\':
		if len(pattern) > 1 {
			pattern = pattern[1:]
		}
	}
	one.add(pattern[0], pattern[0])
	return one, pattern[1:]
}

// bracket parses the inside of a bracket, and its end.
func bracket(p string) (one class, rest string) {
	not := p != "" && p[0] == '^'
	if not {
		p = p[1:]
	}
	for p != "" && p[0] != ']' {
		switch {
		case p[0] == '\\' && len(p) >= 2:
			one.add(p[1], p[1])
			p = p[2:]
		case len(p) >= 3 && p[1] == '-':
			one.add(min(p[0], p[2]), max(p[0], p[2]))
			p = p[3:]
		default:
			one.add(p[0], p[0])
			p = p[1:]
		}
	}
	if p != "" {
		p = p[1:]
	}
	if not {
		for i := range one {
			one[i] = ^one[i]
		}
	}
	return one, p
}
