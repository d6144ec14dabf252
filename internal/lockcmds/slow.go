package lockcmds

import (
	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
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
