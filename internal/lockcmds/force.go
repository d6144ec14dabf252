package lockcmds

import (
	"cmp"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// startForce executes FORCEUNLOCK. It is not repeated: a copy could end a later grant.
func (e *Engine) startForce(s contract.Caller, cmd grammar.Command) {
	call := script.Force{Key: cmd.Key, Owner: cmd.Owner, Fence: script.AnyGrant}.Call
	e.calls.Send(call(), &callRequest{Session: s.Session, For: plainCommand{Call: call, Unsafe: true, Reply: func(o callOutcome) []byte {
		all, err := decoded(o.Reply, o.Err, script.DecodeForced)
		if err != nil {
			return failureReply(err)
		}
		for _, a := range all {
			e.log.Log(logging.Audit, "lock ended by FORCEUNLOCK", logging.Text("key", cmd.Key), logging.Text("owner", a.Owner), zap.Int64("fence", a.Fence),
				zap.String("client", s.Info.Addr), logging.Text("client_name", s.Info.Name), zap.String("user", cmp.Or(e.opts.User, "default")))
			e.forced(cmd.Key, a)
		}
		return redcon.AppendInt(nil, int64(min(1, len(all))))
	}}})
}
