package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// In all tests of this package each call is held against the header of its script.
func init() {
	checkNames = func(s *Script, keys int, pairs []string) {
		lines := headerOf(s)
		for i := range len(pairs) / 2 {
			kind, at := "KEYS", i
			if i >= keys {
				kind, at = "ARGV", i-keys
			}
			if !slices.ContainsFunc(lines, func(l headerNames) bool { return l.has(kind, at, pairs[2*i]) }) {
				panic(fmt.Sprintf("%s.lua: the call has %q as %s[%d]", s.name, pairs[2*i], kind, at+1))
			}
		}
	}
}

// headerNames is a line of a header. One with [a..] stands for all from there on, with its names in turn; one with [..]
// for what is behind them.
type headerNames struct {
	kind     string
	from     int // negative: anywhere
	repeated bool
	names    []string
}

func (l headerNames) has(kind string, at int, name string) bool {
	switch {
	case l.kind != kind:
		return false
	case l.from < 0:
		return l.names[0] == name
	}
	return (at == l.from || l.repeated && at > l.from) && l.names[(at-l.from)%len(l.names)] == name
}

var headers sync.Map // lines by script

func headerOf(s *Script) []headerNames {
	if known, ok := headers.Load(s); ok {
		return known.([]headerNames)
	}
	var lines []headerNames
	for _, line := range headerLine().FindAllStringSubmatch(read(s.name), -1) {
		first, _, repeated := strings.Cut(line[2], "..")
		from, _ := strconv.Atoi(first)
		lines = append(lines, headerNames{line[1], from - 1, repeated, strings.Split(line[3], ", ")})
	}
	headers.Store(s, lines)
	return lines
}
