package session

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// shortened is a command that waits for others, by its name in lower case, as it is sent again after it has waited for
// a time, with the rest of its time limit. raw is the command of the client. The limit is never 0, which means none.
func shortened(name string, raw []byte, waited time.Duration) []byte {
	args := resp.Split(raw, nil)
	at, unit := timeLimit(name, args)
	if at <= 0 || at >= len(args) {
		return raw
	}
	limit, err := strconv.ParseFloat(string(args[at]), 64)
	if err != nil || !(limit > 0) || math.IsInf(limit, 0) {
		return raw // there is none, or Redis refuses it
	}
	rest := max(limit-float64(waited)/float64(unit), float64(time.Millisecond)/float64(unit))
	args = slices.Clone(args)
	if unit == time.Millisecond {
		args[at] = strconv.AppendInt(nil, int64(math.Ceil(rest)), 10)
	} else {
		args[at] = strconv.AppendFloat(nil, rest, 'f', 3, 64)
	}
	return resp.AppendCommand(nil, args...)
}

// timeLimit is the index of the argument that limits the wait, and its unit; 0: there is none.
func timeLimit(name string, args [][]byte) (at int, unit time.Duration) {
	switch name {
	case "blpop", "brpop", "bzpopmin", "bzpopmax", "brpoplpush", "blmove":
		return len(args) - 1, time.Second
	case "wait", "waitaof":
		return len(args) - 1, time.Millisecond
	case "blmpop", "bzmpop":
		return 1, time.Second
	case "xread", "xreadgroup":
		for i := 1; i+1 < len(args); i++ {
			switch command.Keyword(args, i) {
			case "group":
				i += 2
			case "count":
				i++
			case "block":
				return i + 1, time.Millisecond
			case "streams":
				return 0, 0
			}
		}
	}
	return 0, 0
}
