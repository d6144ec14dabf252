package lockcmds

import (
	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
)

// startSlow executes LOCKSLOW: the slow waits and holds of sessions of this user and database, as known here. Redis is
// asked first, as for LOCKLIST. Requires the session lock.
func (e *Engine) startSlow(s contract.Caller, cmd grammar.Command) {
	e.show(s, func(int64) []byte {
		switch cmd.Sub {
		case grammar.SlowGet:
			return slowReply(s.Proto, e.opts.SlowLog.Latest(cmd.Count))
		case grammar.SlowLen:
			return redcon.AppendInt(nil, int64(e.opts.SlowLog.Len()))
		case grammar.SlowReset:
			e.opts.SlowLog.Reset()
			return redcon.AppendOK(nil)
		default:
			return slowHelpReply()
		}
	})
}

// slowReply is the reply of LOCKSLOW GET.
func slowReply(proto int, entries []*observe.Entry) []byte {
	dst := redcon.AppendArray(nil, len(entries))
	for _, e := range entries {
		m := mapAt(dst)
		m.number("id", e.ID)
		m.number("time", e.At.Unix())
		m.text("kind", string(e.Kind))
		m.text("key", e.Key)
		m.text("mode", e.Mode)
		m.text("owner", e.By.Owner)
		m.number("duration-us", e.Took.Microseconds())
		m.text("outcome", e.Outcome)
		if e.Kind != observe.Wait {
			m.text("reason", e.Reason)
		}
		m.text("client", e.By.Addr)
		m.text("name", e.By.Name)
		if e.Kind == observe.Wait {
			m.text("behind", e.Behind.Owner)
			m.text("behind-client", e.Behind.Addr)
			m.text("behind-name", e.Behind.Name)
		}
		dst = m.end(proto)
	}
	return dst
}

// slowHelpReply is the reply of LOCKSLOW HELP, in the form of SLOWLOG HELP.
func slowHelpReply() []byte {
	lines := []string{
		"LOCKSLOW <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"GET [<count>]",
		"    Return top <count> entries from the log of slow waits and holds (default: 10, -1 mean all).",
		"LEN",
		"    Return the length of the log.",
		"RESET",
		"    Reset the log.",
		"HELP",
		"    Print this help.",
	}
	dst := redcon.AppendArray(nil, len(lines))
	for _, line := range lines {
		dst = redcon.AppendString(dst, line)
	}
	return dst
}
