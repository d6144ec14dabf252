package cli

import (
	"context"
	"encoding/json"
	"os"

	"github.com/lockproxy/lockproxy/internal/cli/process"
)

// guardName is the subcommand that exec starts for the case of its own death.
const guardName = "exec-guard"

type guardCommand struct{}

// run waits for the end of exec. If that was its death, no process of the command is left afterwards, and the lock is released.
func (guardCommand) run(p *program) int {
	note, err := process.AwaitOrphan(os.Stdin)
	if err != nil {
		return p.fail(ExitUnreachable, "%v", err)
	}
	var g grantOf
	if note == nil || json.Unmarshal(note, &g) != nil {
		return ExitOK
	}
	t, err := connection{URL: g.URL, PasswordFile: g.PasswordFile}.target()
	if err != nil {
		return ExitUsage
	}
	h := &holder{target: t, key: g.Key, owner: g.Owner, fence: g.Fence}
	defer h.disconnect()
	ctx, cancel := context.WithTimeout(p.ctx, releaseLimit)
	defer cancel()
	if h.release(ctx) != nil {
		return ExitUnreachable // the lock ends with its lease
	}
	return ExitOK
}
