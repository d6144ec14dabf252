//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// operationCount is how many operations the claim "mixed" compares.
const operationCount = 10_000

// operations makes the sequence that the claim "mixed" runs on both servers: commands of all types of data, some of them
// wrong, whose replies depend on nothing but the sequence. So no random members, no clocks, no order of a hash table.
type operations struct {
	r *rand.Rand
}

// writeOperations stores a new sequence as a JSON array of arrays of strings. The seed is logged.
func writeOperations(t *testing.T) (path string) {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("LOCKPROXY_INTEROP_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("operations: LOCKPROXY_INTEROP_SEED=%d", seed)
	b, err := json.Marshal(makeOperations(seed))
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "operations.json")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func makeOperations(seed uint64) [][]string {
	o := operations{r: rand.New(rand.NewPCG(seed, 0))}
	all := make([][]string, operationCount)
	for i := range all {
		if i > operationCount*98/100 && o.r.IntN(10) == 0 {
			all[i] = o.unknown()
			continue
		}
		all[i] = o.next()
	}
	return all
}

// unknown is a command that no Redis has. They come last: a client that sends one has a connection of its own from then on.
func (o operations) unknown() []string { return []string{"NOSUCHCOMMAND", o.value()} }

func (o operations) next() []string {
	families := []func() []string{o.strings, o.strings, o.numbers, o.hashes, o.lists, o.sets, o.sorted, o.streams, o.keys, o.scripts, o.wrong}
	return families[o.r.IntN(len(families))]()
}

// key is mostly of the family's own type.
func (o operations) key(family string) string {
	if o.r.IntN(40) == 0 {
		family = o.pick("string", "number", "hash", "list", "set", "zset", "stream")
	}
	return fmt.Sprintf("{mixed}:%s:%d", family, o.r.IntN(6))
}

func (o operations) pick(from ...string) string { return from[o.r.IntN(len(from))] }

func (o operations) number(n int) string { return strconv.Itoa(o.r.IntN(n)) }

func (o operations) member() string { return "m" + o.number(15) }

func (o operations) value() string {
	switch o.r.IntN(12) {
	case 0:
		return ""
	case 1:
		return "schlüssel-鍵-🔑"
	case 2:
		return "line\r\n+OK\r\n$-1\r\n"
	case 3:
		b := make([]byte, o.r.IntN(20_000))
		for i := range b {
			b[i] = byte('a' + i%26)
		}
		return string(b)
	default:
		return "v" + o.number(1000)
	}
}

func (o operations) strings() []string {
	k := o.key("string")
	switch o.r.IntN(10) {
	case 0, 1:
		return []string{"SET", k, o.value()}
	case 2:
		return []string{"SET", k, o.value(), "NX"}
	case 3:
		return []string{"SET", k, o.value(), "XX", "GET"}
	case 4:
		return []string{"GETRANGE", k, o.number(5), o.number(30)}
	case 5:
		return []string{"STRLEN", k}
	case 6:
		return []string{"MSET", k, o.value(), o.key("string"), o.value()}
	case 7:
		return []string{"MGET", k, o.key("string"), o.key("hash"), "{mixed}:none"}
	case 8:
		return []string{"SETRANGE", k, o.number(30), "xyz"}
	default:
		return []string{"GET", k}
	}
}

func (o operations) numbers() []string {
	k := o.key("number")
	switch o.r.IntN(5) {
	case 0:
		return []string{"INCR", k}
	case 1:
		return []string{"DECRBY", k, o.number(100)}
	case 2:
		return []string{"INCRBYFLOAT", k, o.pick("1", "0.5", "-2.25")}
	case 3:
		return []string{"BITCOUNT", k}
	default:
		return []string{"GET", k}
	}
}

func (o operations) hashes() []string {
	k := o.key("hash")
	switch o.r.IntN(6) {
	case 0, 1:
		return []string{"HSET", k, o.member(), "v" + o.number(100), o.member(), "w" + o.number(100)}
	case 2:
		return []string{"HMGET", k, o.member(), o.member(), "none"}
	case 3:
		return []string{"HDEL", k, o.member()}
	case 4:
		return []string{"HINCRBY", k, "count", o.number(9)}
	default:
		return []string{"HGETALL", k}
	}
}

func (o operations) lists() []string {
	k := o.key("list")
	switch o.r.IntN(8) {
	case 0:
		return []string{"LPUSH", k, o.value(), o.value()}
	case 1:
		return []string{"RPUSH", k, o.value()}
	case 2:
		return []string{"LPOP", k}
	case 3:
		return []string{"RPOP", k, o.number(4)}
	case 4:
		return []string{"LTRIM", k, "0", "20"}
	case 5:
		return []string{"LMOVE", k, o.key("list"), o.pick("LEFT", "RIGHT"), o.pick("LEFT", "RIGHT")}
	case 6:
		return []string{"LINDEX", k, o.pick("0", "-1", "7")}
	default:
		return []string{"LRANGE", k, "0", "9"}
	}
}

func (o operations) sets() []string {
	k := o.key("set")
	switch o.r.IntN(6) {
	case 0, 1:
		return []string{"SADD", k, o.member(), o.member()}
	case 2:
		return []string{"SREM", k, o.member()}
	case 3:
		return []string{"SMISMEMBER", k, o.member(), o.member()}
	case 4:
		return []string{"SCARD", k}
	default:
		return []string{"SORT", k, "ALPHA"}
	}
}

func (o operations) sorted() []string {
	k := o.key("zset")
	switch o.r.IntN(8) {
	case 0, 1:
		return []string{"ZADD", k, o.pick("1", "2.5", "-inf", "1e300", "3"), o.member(), o.number(50), o.member()}
	case 2:
		return []string{"ZSCORE", k, o.member()}
	case 3:
		return []string{"ZINCRBY", k, "0.25", o.member()}
	case 4:
		return []string{"ZRANGE", k, "0", "5", "WITHSCORES"}
	case 5:
		return []string{"ZPOPMIN", k}
	case 6:
		return []string{"ZRANK", k, o.member()}
	default:
		return []string{"ZRANGEBYSCORE", k, "-inf", "(40", "LIMIT", "0", "4"}
	}
}

func (o operations) streams() []string {
	k := o.key("stream")
	switch o.r.IntN(5) {
	case 0, 1:
		return []string{"XADD", k, "MAXLEN", "20", o.number(1000) + "-" + o.number(9), "field", o.value()}
	case 2:
		return []string{"XLEN", k}
	case 3:
		return []string{"XRANGE", k, "-", "+", "COUNT", "5"}
	default:
		return []string{"XREAD", "COUNT", "2", "STREAMS", k, "0"}
	}
}

func (o operations) keys() []string {
	k := o.key(o.pick("string", "number", "hash", "list", "set", "zset", "stream"))
	switch o.r.IntN(6) {
	case 0:
		return []string{"DEL", k}
	case 1:
		return []string{"EXISTS", k, o.key("hash")}
	case 2:
		return []string{"TYPE", k}
	case 3:
		return []string{"RENAME", k, k + ":renamed"}
	case 4:
		return []string{"PERSIST", k}
	default:
		return []string{"COPY", k, k + ":copy", "REPLACE"}
	}
}

func (o operations) scripts() []string {
	switch o.r.IntN(4) {
	case 0:
		return []string{"EVAL", "return {1, 'two', {3, false, redis.status_reply('FINE')}}", "0"}
	case 1:
		return []string{"EVAL", "return redis.call('GET', KEYS[1])", "1", o.key("string")}
	case 2:
		return []string{"EVAL", "return redis.error_reply('CUSTOM ' .. ARGV[1])", "0", o.number(9)}
	default:
		return []string{"ECHO", o.value()}
	}
}

// wrong are commands that Redis refuses, by arity, syntax or type.
func (o operations) wrong() []string {
	switch o.r.IntN(5) {
	case 0:
		return []string{"GET"}
	case 1:
		return []string{"SET", o.key("string"), "v", "NX", "XX"}
	case 2:
		return []string{"INCR", o.key("hash")}
	case 3:
		return []string{"EXPIRE", o.key("string"), "soon"}
	default:
		return []string{"LPUSH", o.key("zset"), "v"}
	}
}
