package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// fieldAt is where a script has by what it knows the session of a named owner, among its arguments.
var fieldAt = map[string]int{"acquire": 4, "attempt": 4, "extend": 4, "release": 5, "handover": 5, "drop": 4}

// namedHold is what Redis has of an owner that several sessions are.
type namedHold struct {
	fence, holds, expire int64
	by                   string
}

func (p stake) named() namedHold { return namedHold{p.fence, p.holds, p.expire, p.by} }

// sessionOf is the session in what a script knows a session by: its own name in braces, or the name of an acquire.
func sessionOf(field string) string {
	if name, ok := strings.CutPrefix(field, "{"); ok {
		return strings.TrimSuffix(name, "}")
	}
	return field[:max(0, strings.LastIndexByte(field, ':'))]
}

// named judges what a call has done to the hold of an owner that several sessions are. An acquire adds one, unless it
// finds that it has made the grant, and a release takes one. A rollback ends a grant in which one session alone has
// taken part.
func (r *rules) named(at *server, name string, args []string, key string, before, after namedHold) {
	i, ok := fieldAt[name]
	if !ok || owned(args[0]) {
		return
	}
	field, g := args[i], grant{key, before.fence}
	if before.fence == 0 {
		return
	}
	if first, served := r.servers[g]; served && first != at || !r.authority(at, key) {
		r.servers[g] = nil // each of several servers may have carried the same calls out
	}
	same, change := after.fence == before.fence, after.holds-before.holds
	switch name {
	case "drop":
		if after == before {
			return
		}
		if field != before.by || r.servers[g] != nil && len(r.takers[g]) > 1 {
			r.w.fail("a rollback ended what others take part in", "%s of %s by %s: %+v, taken by %q", key, args[0], field, before, r.takers[g])
		}
	case "release", "handover":
		if !same {
			r.ended[named{key, args[0]}] = before.fence
		}
		if named := args[1] != "0" && whole(args[1]) != before.fence; !named && (same && (change != -1 || after.by != before.by) || !same && before.holds > 1) {
			r.w.fail("holds were not counted by one", "%s of %s: %d by %s", key, args[0], change, name)
		}
	case "extend":
		r.takes(g, field)
		if same && change != 0 {
			r.w.fail("holds were not counted by one", "%s of %s: %d by %s", key, args[0], change, name)
		}
	default:
		own := args[i-1]
		if !same || after == before && own != before.by {
			return
		}
		r.takes(g, own)
		switch by := after.by; {
		case own == before.by && (change != 0 || by != own):
			r.w.fail("a copy was carried out again", "%s of %s: %s by %s", key, args[0], name, own)
		case own == before.by && after.expire < at.ms()+whole(args[1]):
			r.w.fail("an acquire found its grant without a new lease", "%s of %s: %s by %s", key, args[0], name, own)
		case own == before.by:
		case change != 1:
			r.w.fail("holds were not counted by one", "%s of %s: %d by %s", key, args[0], change, name)
		case field == before.by && by != before.by, field != before.by && by != "*":
			r.w.fail("it is not known who takes part", "%s of %s: %s behind %s of %s", key, args[0], by, before.by, field)
		}
	}
}

// follows notes that a server has the data of another one in place of its own. LOCK b OWNER o1 SYNC 1 of a second
// session at s1, s2 is promoted, s1 follows it and is primary again: it has the holds and the {by} of before that LOCK.
func (r *rules) follows(s *server) {
	for g, first := range r.servers {
		if first == s {
			r.servers[g] = nil
		}
	}
}

// takes notes that a session takes part in a grant.
func (r *rules) takes(g grant, field string) {
	if s := sessionOf(field); !slices.Contains(r.takers[g], s) {
		r.takers[g] = append(r.takers[g], s)
	}
}

// countsNamed is what the client counts on by the reply to a command for such an owner. Another session may release
// what an acquire has got before the reply to the acquire is there: such a hold is not counted.
func (c *client) countsNamed(s *slot, v resp.Value) {
	k, text := named{s.cmd.Key, s.cmd.Owner}, string(v.Str)
	switch {
	case acquires(s.cmd.Verb) && v.Kind == resp.Integer:
		switch r := c.w.rules; {
		case v.Int <= r.ended[k]:
		case r.ahead[k] > 0:
			r.ahead[k]--
		default:
			c.mine[k]++
		}
	case strings.HasPrefix(text, "NOTHELD"), strings.HasPrefix(text, "LOSTLEASE"):
		delete(c.mine, k)
	case s.cmd.Verb != grammar.Unlock || v.Kind != resp.Integer:
	case v.Int == 1:
		delete(c.w.rules.ahead, k)
		for _, other := range c.w.all {
			delete(other.mine, k)
		}
	case c.mine[k] > 0:
		c.mine[k]--
	default:
		for _, ended := range []bool{false, true} {
			for _, other := range c.w.all {
				if other.ended == ended && other.mine[k] > 0 {
					other.mine[k]--
					return
				}
			}
		}
		c.w.rules.ahead[k]++
	}
}

// expired notes that the lease of such an owner has ended. The latest acquire sets it: LOCK a PX 2779 OWNER o0 of one
// session, and LOCK a MAXHOLD 1351 OWNER o0 of another. The first one is told at the end of the lease that it has chosen.
func (r *rules) expired(key string, fence int64) {
	for k, last := range r.lasting {
		if k.key == key && last.fence == fence {
			for _, c := range r.w.all {
				delete(c.mine, k)
			}
		}
	}
}

// few judges that Redis has no fewer holds of such an owner than its sessions count on. Empty: it has not.
func (r *rules) few() string {
	counted := map[named]int64{}
	for _, c := range r.w.clients {
		if c.ended || c.p.killed {
			continue
		}
		for k, n := range c.mine {
			counted[k] += n
		}
	}
	for k, n := range counted {
		if k.key == permitKey {
			continue
		}
		p := r.find(k.key).picture(k.key)
		now, _ := p.part(k.owner)
		if now.holds < n {
			return fmt.Sprintf("%s: the sessions of %s count on %d holds, redis has %+v", k.key, k.owner, n, now)
		}
	}
	return ""
}

// owned reports whether none of the owners is one that several sessions are.
func owned(owners ...string) bool {
	return !slices.ContainsFunc(owners, func(o string) bool { return strings.HasPrefix(o, "o") })
}
