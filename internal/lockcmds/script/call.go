package script

import (
	"regexp"
	"slices"
	"sync"
)

// This file makes calls. A script names its keys and arguments in the lines that unpack them. Nothing else knows their
// order:
//
//	local lock, counter = unpack(KEYS)             the first ones
//	local owner, fence = unpack(ARGV, i, i + 1)    a row; there may be any number of them behind the first ones
//
// lib/names.lua tells what each name means.

// Call is one run of a script.
type Call struct {
	*Script
	Keys, Args []string
}

// names are those that a script has for its keys or arguments.
type names struct{ first, row []string }

// unpacked is a line of a script that names keys or arguments.
var unpacked = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^ *(?:local )?([a-z_]+(?:,\s+[a-z_]+)*) = unpack\((KEYS|ARGV)([,)])`)
})

// namesIn finds the names of one kind in a script: KEYS or ARGV.
func namesIn(text, kind string) (n names) {
	for _, line := range unpacked().FindAllStringSubmatch(text, -1) {
		switch list := separator().Split(line[1], -1); {
		case line[2] != kind:
		case line[3] == ")":
			n.first = list
		default:
			n.row = list
		}
	}
	return n
}

var separator = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`,\s+`) })

// appendTo appends the values that pairs has behind the names, in the order of the script. A name without a value is
// empty, or absent if no name behind it has one.
func appendTo(dst, names, pairs []string) []string {
	from, n := len(dst), 0
	dst = slices.Grow(dst, len(names))[:from+len(names)]
	clear(dst[from:])
	for i, at := 0, 0; i < len(pairs); i, at = i+2, at+1 {
		if at >= len(names) || names[at] != pairs[i] { // mostly they have the order of the script
			if at = slices.Index(names, pairs[i]); at < 0 {
				panic("BUG: no script argument " + pairs[i])
			}
		}
		dst[from+at] = pairs[i+1]
		n = max(n, at+1)
	}
	return dst[:from+n]
}

// appendRow appends a row of arguments.
func (s *Script) appendRow(dst []string, pairs ...string) []string {
	return appendTo(dst, s.args.row, pairs)
}

// appendKeys appends the keys of a lock. timeout is that of an owner, see timeoutOf; empty: there is none.
func appendKeys(dst, names []string, lock, timeout string) []string {
	var (
		space [512]byte
		text  = space[:0]
		ends  [16]int
	)
	from := len(dst)
	for i, name := range names { // those that are made here share one allocation
		key := ""
		switch name {
		case "lock":
			key = lock
		case "counter":
			key = Fence
		case "timeout":
			if key = timeout; key == "" { // it is the last key
				names = names[:i]
			}
		default:
			text = appendKey(text, name, lock)
		}
		dst, ends[i+1] = append(dst, key), len(text)
	}
	all := string(text)
	for i := range names {
		if dst[from+i] == "" {
			dst[from+i] = all[ends[i]:ends[i+1]]
		}
	}
	return dst[:from+len(names)]
}

// of is a call about a lock, with the arguments that pairs has behind their names. Publish is among them.
func (s *Script) of(lock string, pairs ...string) Call { return s.ofHold(lock, "", pairs...) }

// ofHold is a call about a hold. timeout is its lease, if it is known to be a shared one; else empty.
func (s *Script) ofHold(lock, timeout string, pairs ...string) Call {
	s.composed()
	all := appendKeys(make([]string, 0, len(s.keys.first)+len(s.args.first)), s.keys.first, lock, timeout)
	n := len(all)
	all = appendTo(all, s.args.first, pairs)
	c := Call{s, all[:n:n], all[n:]}
	if at := s.publish; at >= 0 {
		if at >= len(c.Args) {
			c.Args = c.Args[:at+1]
		}
		c.Args[at] = publish
	}
	return c
}

// publish is the command by which the scripts wake waiters, spublish the one in a cluster whose clients listen by
// SSUBSCRIBE.
const (
	publish  = "PUBLISH"
	spublish = "SPUBLISH"
)

// Servers are what the scripts must know of the servers that run them. The zero value is one server.
type Servers struct {
	Slots   bool // a cluster: all keys of a call are of one hash slot, and so is its fence counter
	Sharded bool // waiters listen by SSUBSCRIBE, so they are woken by SPUBLISH
}

// On is the call for these servers. It changes the slices of the call, which may be called upon again.
func (c Call) On(s Servers) Call {
	if !s.Slots || c.Script == nil || len(c.Keys) == 0 {
		return c
	}
	c.composed()
	if i := c.counter; i >= 0 {
		c.Keys[i] = FenceOf(c.Keys[0], true)
	}
	if i := c.publish; s.Sharded && i >= 0 {
		c.Args[i] = spublish
	}
	return c
}
