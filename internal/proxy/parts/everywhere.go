package parts

import (
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// everywhere has the commands that concern all primaries, by name or "name subcommand". Redis's tips (request_policy, response_policy) say most of
// this. For PING, RANDOMKEY, PUBSUB and ACL, among others, they are missing or do not fit, so the list is the proxy's own. Other commands without a
// key go to any server.
var everywhere = map[string]Join{
	"keys": unlessError(false, concatenate), "dbsize": unlessError(false, sum), "randomkey": unlessError(false, some(rand.IntN)), "info": info,
	"flushall": unlessError(true, first), "flushdb": unlessError(true, first),
	"save": unlessError(true, first), "bgsave": unlessError(true, first), "bgrewriteaof": unlessError(true, first),

	"script load": unlessError(true, first), "script flush": unlessError(true, first), "script exists": unlessError(false, elementwise(both)), "script kill": anyOf,
	"function load": unlessError(true, first), "function delete": unlessError(true, first), "function flush": unlessError(true, first),
	"function restore": unlessError(true, first), "function kill": anyOf,

	"config set": unlessError(true, first), "config resetstat": unlessError(true, first), "config rewrite": unlessError(true, first),
	"acl setuser": unlessError(true, first), "acl deluser": unlessError(true, first), "acl load": unlessError(true, first), "acl save": unlessError(true, first),
	"client pause": unlessError(true, first), "client unpause": unlessError(true, first),
	"slowlog len": unlessError(false, sum), "slowlog reset": unlessError(true, first),
	"latency reset": unlessError(true, sum), "memory purge": unlessError(true, first),

	"pubsub channels": unlessError(false, union), "pubsub shardchannels": unlessError(false, union), "pubsub numpat": unlessError(false, greatest),
	"pubsub numsub": unlessError(false, elementwise(plus)), "pubsub shardnumsub": unlessError(false, elementwise(plus)),
}

func both(a, b int) int { return a & b }
func plus(a, b int) int { return a + b }

// Everywhere returns how the replies of all primaries to a command are joined; nil: the command concerns one server. name and sub, the first
// argument, are in lower case. args are those of the command.
func Everywhere(name, sub string, args [][]byte) Join {
	if join := everywhere[name]; join != nil {
		return join
	}
	switch name + " " + sub {
	case "slowlog get":
		return unlessError(false, newest(entries(args), func(v resp.Value) float64 { return -float64(v.Elems[1].Int) }))
	case "acl log":
		return unlessError(false, newest(entries(args), age))
	}
	return everywhere[name+" "+sub]
}

// AllKeys reports whether a command, by its name in lower case, concerns all keys. In a transaction, which is at one server, it would miss most of them.
func AllKeys(name string) bool {
	switch name {
	case "keys", "scan", "dbsize", "flushall", "flushdb":
		return true
	}
	return false
}

// age is that of an entry of ACL LOG.
func age(entry resp.Value) float64 {
	for i := 0; i+1 < len(entry.Elems); i += 2 {
		if string(entry.Elems[i].Str) == "age-seconds" {
			n, _ := strconv.ParseFloat(string(entry.Elems[i+1].Str), 64)
			return n
		}
	}
	return 0
}

// entries is the number of entries that a command asks for. Redis refuses other numbers than these.
func entries(args [][]byte) int {
	if len(args) < 3 {
		return 10
	}
	n, err := strconv.Atoi(string(args[2]))
	if err != nil || n < 0 {
		return math.MaxInt
	}
	return n
}
