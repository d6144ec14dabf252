package commands

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// specs are those of the commands of a Redis, by command or "command|subcommand".
func specs(t *testing.T, r *redistest.Server) map[string]Spec {
	all := map[string]Spec{}
	var take func(any)
	take = func(v any) {
		e := v.([]any)
		all[fmt.Sprint(e[0])] = Compile(value(e[8]))
		for _, sub := range e[9].([]any) {
			take(sub)
		}
	}
	for _, e := range r.Do(t, "COMMAND").([]any) {
		take(e)
	}
	return all
}

// value is a decoded reply as a resp.Value.
func value(v any) resp.Value {
	switch v := v.(type) {
	case []any:
		out := resp.Value{Kind: resp.Array}
		for _, e := range v {
			out.Elems = append(out.Elems, value(e))
		}
		return out
	case int64:
		return resp.Value{Kind: resp.Integer, Int: v}
	default:
		return resp.Value{Kind: resp.Bulk, Str: []byte(fmt.Sprint(v))}
	}
}

// The oracle is COMMAND GETKEYS.
func TestKeysAreThoseThatRedisFinds(t *testing.T) {
	r := redistest.Start(t)
	all := specs(t, r)
	for _, line := range []string{
		"GET a", "SET a b EX 10", "MGET a b c", "MSET a 1 b 2 c 3", "MSETNX a 1 b 2", "DEL a b", "EXISTS a b", "BLPOP a b 0", "BRPOPLPUSH a b 0",
		"EVAL s 2 a b arg", "EVALSHA s 1 a", "FCALL f 1 a x", "EVAL_RO s 1 a", "ZUNIONSTORE d 2 a b WEIGHTS 1 2", "ZINTER 2 a b", "ZDIFF 1 a",
		"SINTERCARD 2 a b LIMIT 1", "LMPOP 2 a b LEFT", "BLMPOP 0 2 a b LEFT", "BZMPOP 1 1 a MIN", "XREAD COUNT 2 STREAMS a b 0 0",
		"XREADGROUP GROUP streams c STREAMS k >", "xreadgroup group g streams streams k 0", "BITOP AND d a b", "OBJECT ENCODING a", "XINFO STREAM a",
		"XGROUP CREATE a g $", "MEMORY USAGE a", "SORT a STORE d", "GEORADIUS a 1 1 1 km STORE d", "MIGRATE h 1 k 0 10", "RENAME a b", "PFCOUNT a b",
		"MIGRATE h 1  0 10 KEYS a b", "LCS a b", "COPY a b", "SPUBLISH c m", "SSUBSCRIBE a b", "GETEX a PERSIST", "ZADD z 1 m", "LMOVE a b LEFT RIGHT",
		"EVAL s \t1 a", "EVAL s +1 a", "EVAL s 01 a b", "EVAL s -9223372036854775807 a", "EVAL s 1x a b", "FCALL f 4294967297 a", "LMPOP -4294967295 a LEFT", "BZMPOP 0 4294967298 a b MIN",
	} {
		args := strings.Split(line, " ")
		name := strings.ToLower(args[0])
		if _, ok := all[name+"|"+strings.ToLower(args[1])]; ok {
			name += "|" + strings.ToLower(args[1])
		}
		split := make([][]byte, len(args))
		for i, a := range args {
			split[i] = []byte(a)
		}
		var want []string
		if strings.HasPrefix(name, "s") && strings.Contains(line, " c m") || name == "ssubscribe" {
			want = args[1:2] // channels are no keys for GETKEYS, but have slots
		} else {
			ask := []any{"COMMAND", "GETKEYS"}
			for _, a := range args {
				ask = append(ask, a)
			}
			for _, k := range r.Do(t, ask...).([]any) {
				want = append(want, fmt.Sprint(k))
			}
		}
		first := all[name].First(split)
		if first == 0 || args[first] != want[0] {
			t.Errorf("%s: first key at %d, want %q", line, first, want)
		}
		var found []string
		for _, i := range all[name].All(split, nil) {
			found = append(found, args[i])
		}
		if name == "sort" || name == "spublish" || name == "ssubscribe" || name == "georadius" || name == "migrate" {
			continue // not all of their keys can be found
		}
		if several := all[name].Several(split); several != (len(found) > 1) {
			t.Errorf("%s: several keys: %v", line, several)
		}
		if !slices.Equal(found, want) {
			t.Errorf("%s: keys %q, want %q", line, found, want)
		}
	}
}

func TestCommandsWithoutKeysHaveNone(t *testing.T) {
	all := specs(t, redistest.Start(t))
	for _, line := range []string{
		"PING", "EVAL s 0 a", "EVAL s x a", "EVAL s -1 a", "EVAL s 99999999999999999999 a", "EVAL s 5 a b", "EVAL s", "EVAL s - a", "EVAL s 9223372036854775807 a",
		"EVAL s -9223372036854775808 a", "EVAL s 18446744073709551617 a", "EVAL s 4294967295 a", "EVAL s 1-1", "XREAD COUNT 1", "XREAD STREAMS", "BLPOP x",
		"ZUNION 2147483648 a", "GET", "OBJECT HELP", "FLUSHALL",
	} {
		args := strings.Fields(line)
		split := make([][]byte, len(args))
		for i, a := range args {
			split[i] = []byte(a)
		}
		if first := all[strings.ToLower(args[0])].First(split); first != 0 {
			t.Errorf("%s: first key at %d, want none", line, first)
		}
	}
}

func TestRangesAreThoseOfOlderRedis(t *testing.T) {
	args := [][]byte{nil, []byte("a"), []byte("b"), []byte("c"), []byte("d")}
	for _, c := range []struct {
		first, last, step int
		want              []int
	}{
		{0, 0, 0, nil},
		{1, 1, 1, []int{1}},
		{1, -1, 1, []int{1, 2, 3, 4}},
		{1, -1, 2, []int{1, 3}},
		{1, -2, 1, []int{1, 2, 3}},
		{2, 3, 1, []int{2, 3}},
	} {
		if got := Range(c.first, c.last, c.step).All(args, nil); !slices.Equal(got, c.want) {
			t.Errorf("%d to %d by %d: %v, want %v", c.first, c.last, c.step, got, c.want)
		}
	}
}

func TestFirstDoesNotAllocate(t *testing.T) {
	s := Spec{[]place{{word: "streams", from: 1, last: -1, step: 1, limit: 2}}}
	n := Spec{[]place{{index: 2, numbers: true, first: 1, step: 1}}}
	args := [][]byte{[]byte("XREAD"), []byte("COUNT"), []byte("2"), []byte("Streams"), []byte("k"), []byte("0")}
	if got := testing.AllocsPerRun(100, func() { s.First(args); n.First(args) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
	if s.First(args) != 4 || n.First(args) != 3 {
		t.Error("not the first keys", s.First(args), n.First(args))
	}
}

func FuzzFirst(f *testing.F) {
	f.Add("EVAL s 2 a b", 2, 0, 1)
	f.Fuzz(func(t *testing.T, line string, index, count, first int) {
		args := strings.Split(line, " ")
		split := make([][]byte, len(args))
		for i, a := range args {
			split[i] = []byte(a)
		}
		small := func(n int) int { return n & 3 }
		for _, s := range []Spec{
			{[]place{{index: small(index), numbers: true, count: small(count), first: small(first), step: 1}}},
			{[]place{{index: small(index), last: -small(count), step: 1 + small(first), limit: small(first)}}},
			{[]place{{word: "streams", from: small(index) - 2, last: -1, step: 1, limit: 2}}},
		} {
			for _, i := range s.All(split, nil) {
				if i <= 0 || i >= len(split) {
					t.Fatalf("%q: key at %d", line, i)
				}
			}
			if i := s.First(split); i < 0 || i >= len(split) {
				t.Fatalf("%q: first key at %d", line, i)
			}
		}
	})
}

// The first arguments of a long command tell as much as all of them.
func TestFirstArgumentsAreEnoughWhereTheySaySo(t *testing.T) {
	const few = 8
	all := specs(t, redistest.Start(t))
	for name, spec := range all {
		if !spec.Early(few) {
			continue
		}
		args := slices.Repeat([][]byte{[]byte("1")}, 3000)
		if a, b := spec.First(args), spec.First(args[:few]); a != b || spec.Several(args) != spec.Several(args[:few]) {
			t.Errorf("%s: the first key is argument %d, or %d by the first arguments", name, a, b)
		}
	}
	for name, want := range map[string]bool{"del": true, "mset": true, "sadd": true, "rename": true, "ping": true, "eval": false, "xread": false, "lmpop": false} {
		if all[name].Early(few) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
