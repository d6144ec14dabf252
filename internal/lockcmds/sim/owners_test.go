package sim

import (
	"slices"
	"strconv"
	"strings"
)

// part is what a session has acquired, and not released, for an owner that several sessions are. Servers that do not
// count any more have a share in it.
type part struct {
	grant
	field string
}

// fieldAt is where a script has the field of the session of a named owner, among its arguments.
var fieldAt = map[string]int{"acquire": 6, "acquire_shared": 6, "fair": 5, "crowd": 5, "extend": 4, "release": 6, "handover": 6, "drop": 6}

// countedByOne judges what a call has done to the holds of an owner that several sessions are: an acquire raises them
// by one and a release lowers them by one, unless the call is a copy, and a rollback takes no more than its session has
// acquired and not released.
func (r *rules) countedByOne(at *server, name string, args []string, key string, before, after holder) {
	was, is := latest(before.sessions), latest(after.sessions)
	if after.exists && after.fence != before.fence {
		for field := range is { // of the session that was granted the lock
			r.parts[part{grant{key, after.fence}, field}]++
		}
		after.holds = 0 // of the owner before
	}
	i, ok := fieldAt[name]
	if !ok || owned(args[0]) || before.owner != args[0] || before.fence == 0 {
		return
	}
	mine := part{grant{key, before.fence}, args[i]}
	if first, served := r.servers[mine.grant]; served && first != at || !r.authority(at, key) {
		r.servers[mine.grant] = nil
	} else {
		r.servers[mine.grant] = at
	}
	for field, n := range is {
		if was[field] != n && field != mine.field && after.owner == before.owner {
			r.w.fail("a field was written by another session", "%s: %s of %s, by %s", key, field, after.owner, name)
		}
	}
	change := after.holds - before.holds
	copied := whole(args[numbered[name]]) <= was[mine.field]
	switch {
	case name == "drop" && r.servers[mine.grant] == nil: // each of several servers may have carried the same calls out
	case name == "drop":
		if -change > r.parts[mine] {
			r.w.fail("a rollback released the hold of another session", "%s of %s: %d, of %d that %s has", key, before.owner, -change, r.parts[mine], mine.field)
		}
		r.parts[mine] += change
	case copied || name == "extend":
		if change != 0 {
			r.w.fail("a copy was carried out again", "%s of %s: %s with number %s, after %d", key, before.owner, name, args[numbered[name]], was[mine.field])
		}
	case name == "release" || name == "handover":
		if change < -1 || change > 0 {
			r.w.fail("holds were not counted by one", "%s of %s: %d by %s", key, before.owner, change, name)
		}
		if !r.w.lost(mine) { // else its own hold is rolled back, and this one is another session's
			r.parts[mine] = max(0, r.parts[mine]+change)
		}
	default:
		if change != 1 {
			r.w.fail("holds were not counted by one", "%s of %s: %d by %s", key, before.owner, change, name)
		}
		r.parts[mine]++
	}
}

// lost reports whether the session was told that it has lost its part.
func (w *world) lost(p part) bool {
	return slices.ContainsFunc(w.all, func(c *client) bool { return "{"+c.owner()+"}" == p.field && c.told[p.grant] > 0 })
}

// latest are the numbers in the fields of sessions.
func latest(sessions string) map[string]int64 {
	all := map[string]int64{}
	for line := range strings.Lines(sessions) {
		field, n, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		all[field], _ = strconv.ParseInt(n, 10, 64)
	}
	return all
}

// owned reports whether none of the owners is one that several sessions are.
func owned(owners ...string) bool {
	return !slices.ContainsFunc(owners, func(o string) bool { return strings.HasPrefix(o, "o") })
}
