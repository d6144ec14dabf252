package lockcmds

import "strings"

// matches reports whether a name matches a pattern, as in Redis's KEYS and SCAN:
//
//	?      one byte
//	*      any bytes, or none
//	[abc]  one of these bytes
//	[a-c]  one byte of this range
//	[^a]   any other byte
//	\x     x itself
//
// If it comes to nothing behind a star, only the latest star takes one byte more. So the cost grows with the product of
// the lengths at most, and a pattern is short (grammar). A library with the classes of Redis and this bound is not
// known: tidwall/match has no classes.
func matches(pattern, name string) bool {
	rest, at := pattern, 0
	starred := false
	var behind string // the pattern behind the latest star
	var next int      // where the name goes on if that star takes one byte more
	for at < len(name) {
		if rest != "" && rest[0] == '*' {
			rest = rest[1:]
			starred, behind, next = true, rest, at+1
			continue
		}
		if rest != "" {
			var ok bool
			if rest, ok = one(rest, name[at]); ok {
				at++
				continue
			}
		}
		if !starred {
			return false
		}
		rest, at = behind, next
		next++
	}
	return strings.Trim(rest, "*") == ""
}

// one takes what stands for one byte off the pattern, and reports whether it stands for c.
func one(pattern string, c byte) (rest string, ok bool) {
	switch pattern[0] {
	case '?':
		return pattern[1:], true
	case '[':
		return bracket(pattern[1:], c)
	case '\\':
		if len(pattern) > 1 {
			pattern = pattern[1:]
		}
	}
	return pattern[1:], pattern[0] == c
}

// bracket is one for the inside of a bracket, and its end. As in Redis a bracket that is not closed ends with the
// pattern.
func bracket(p string, c byte) (rest string, ok bool) {
	not := p != "" && p[0] == '^'
	if not {
		p = p[1:]
	}
	for p != "" && p[0] != ']' {
		from, to, size := p[0], p[0], 1
		switch {
		case p[0] == '\\' && len(p) >= 2:
			from, to, size = p[1], p[1], 2
		case len(p) >= 3 && p[1] == '-':
			from, to, size = min(p[0], p[2]), max(p[0], p[2]), 3
		}
		ok = ok || from <= c && c <= to
		p = p[size:]
	}
	if p != "" {
		p = p[1:]
	}
	return p, ok != not
}
