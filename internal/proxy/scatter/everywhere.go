package scatter

import (
	"bytes"
	"math/rand/v2"
)

// atAll says what a command does at all primaries.
type atAll struct {
	acts bool // it does not only ask
	join Join
}

func acts(join Join) atAll { return atAll{true, unlessError(true, join)} }

func asks(join Join) atAll { return atAll{false, unlessError(false, join)} }

// everywhere has the commands that concern all primaries, by name or "name subcommand". Redis's tips (request_policy,
// response_policy) say most of this. For PING, RANDOMKEY and ACL, among others, they are missing or do not fit,
// so the list is the proxy's own. Other commands without a key go to any server.
var everywhere = map[string]atAll{
	"keys": asks(concatenate), "dbsize": asks(sum), "randomkey": asks(some(rand.IntN)),
	"flushall": acts(first), "flushdb": acts(first),
	"save": acts(first), "bgsave": acts(first), "bgrewriteaof": acts(first),

	"script load": acts(first), "script flush": acts(first), "script exists": asks(inAll),
	"script kill":   {join: anyOf},
	"function load": acts(first), "function delete": acts(first), "function flush": acts(first),
	"function restore": acts(first), "function kill": {join: anyOf},

	"config set": acts(first), "config resetstat": acts(first), "config rewrite": acts(first),
	"acl setuser": acts(first), "acl deluser": acts(first), "acl load": acts(first), "acl save": acts(first),
	"client pause": acts(first), "client unpause": acts(first),
	"slowlog reset": acts(first), "latency reset": acts(sum), "memory purge": acts(first),
}

// Everywhere returns how the replies of all primaries to a command are joined; nil: the command concerns one server.
// name and sub, the first argument, are in lower case. args are those of the command.
func Everywhere(name, sub string, args [][]byte) Join {
	if join := everywhere[name].join; join != nil {
		return join
	}
	if name == "acl" && sub == "log" && len(args) > 2 && bytes.EqualFold(args[2], []byte("reset")) {
		return acts(first).join
	}
	return everywhere[name+" "+sub].join
}

// NeedsAll reports whether a command makes no sense at one server only, as inside a transaction: it acts on all
// servers, or concerns all keys.
func NeedsAll(name, sub string) bool {
	switch name {
	case "keys", "scan", "dbsize":
		return true
	}
	return everywhere[name].acts || everywhere[name+" "+sub].acts
}
