package lockcmds

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// This file makes lists of locks. The cost of a list grows with the number of locks, and a client chooses the time, the
// number of lists and the pattern. So a job makes the list. It takes the locks in slices, each under the lock of the
// engine, and matches, sorts and prints between them without it.

// listSlice is how many locks are looked at in one go.
const listSlice = 256

// lockSource appends the locks before place end of the list of the held locks, the last first, at most listSlice. It
// returns up to where it has come; end -1 begins, and 0 is the end. Walked backwards, a lock that is there all the
// time is seen though others come and go. It may be seen twice.
type lockSource func(slice []lockInfo, end int) ([]lockInfo, int)

// findLocks lists the locks of a source whose key matches the pattern, by key, and at most most of them; an empty
// pattern matches all, and 0 is no limit. size is how many locks there are, roughly. A lock that is taken or let go
// meanwhile may be in the list or not. Requires no locks.
func findLocks(held lockSource, size int, pattern string, most int) []lockInfo {
	matches := func(string) bool { return true }
	if pattern != "" {
		matches = observe.Compile(pattern).Match
	}
	var found, slice []lockInfo
	if pattern == "" && most == 0 {
		found = make([]lockInfo, 0, size)
	}
	for end := -1; end != 0; {
		slice, end = held(slice[:0], end)
		for _, i := range slice {
			if matches(i.Key) {
				found = append(found, i)
			}
		}
		if most > 0 && len(found) >= 2*most+listSlice {
			found = firstByKey(found, most)
		}
		runtime.Gosched() // as yield does
	}
	return firstByKey(found, most)
}

// firstByKey returns the first of the locks by key, each once; 0 is no limit.
func firstByKey(found []lockInfo, most int) []lockInfo {
	order := make([]int, len(found)) // cheaper to move than the locks
	for i := range order {
		order[i] = i
	}
	steps := 0
	slices.SortFunc(order, func(a, b int) int {
		yield(steps)
		steps++
		x, y := &found[a], &found[b]
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Owner, y.Owner), cmp.Compare(x.Mode, y.Mode), cmp.Compare(x.Fence, y.Fence))
	})
	if most == 0 {
		most = len(found)
	}
	first := make([]lockInfo, 0, min(most, len(found)))
	for n, i := range order {
		if last := len(first) - 1; last >= 0 && first[last].same(&found[i]) {
			continue
		}
		if len(first) == most {
			break
		}
		first = append(first, found[i])
		yield(n)
	}
	return first
}

// same reports whether both are one hold, which was seen twice: perhaps by two grants of its owner, of which one has ended.
func (i *lockInfo) same(o *lockInfo) bool {
	return i.Key == o.Key && i.Owner == o.Owner && i.Mode == o.Mode && (i.Mode != script.ModeLimit || i.Fence == o.Fence)
}

// Reply is the reply of LOCKLIST.
func Reply(proto int, found []lockInfo) []byte {
	size := 0
	for _, i := range found {
		size += typicalInfo + len(i.Key) + len(i.Owner) + len(i.Client.Addr) + len(i.Client.Name)
	}
	out := redcon.AppendArray(make([]byte, 0, size), len(found))
	for n, i := range found {
		out = appendLockInfo(out, proto, i)
		yield(n)
	}
	return out
}

// typicalInfo is what a lock takes in a list besides its names: little more than that.
const typicalInfo = 256

// yield lets the engines that move bytes go first, now and then in a loop that makes a list.
func yield(i int) {
	if i%listSlice == listSlice-1 {
		runtime.Gosched()
	}
}
