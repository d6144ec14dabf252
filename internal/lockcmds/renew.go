package lockcmds

import (
	"context"
	"fmt"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// Renew is the watchdog's round trip: one script for the whole batch, on the connection of one identity, which is a
// redislink.Node.
func (cl scriptRunner) Renew(ctx context.Context, by any, batch []watchdog.Renewal) ([]watchdog.Verdict, error) {
	verdicts := make([]watchdog.Verdict, len(batch))
	if err := cl.renewSome(ctx, by.(redislink.Node), batch, verdicts); err != nil {
		return nil, err
	}
	return verdicts, nil
}

// renewAll is one script.
func (cl scriptRunner) renewAll(ctx context.Context, by redislink.Node, batch []watchdog.Renewal, verdicts []watchdog.Verdict) error {
	call := make(script.Renew, len(batch))
	for i, r := range batch {
		call[i] = script.Renewal{Key: r.Key, Owner: r.Owner, Fence: r.Fence, Lease: r.TTL}
	}
	v, err := cl.runAs(ctx, by, call.Call())
	if err != nil {
		return err
	}
	all, err := script.DecodeRenewed(v)
	if err != nil {
		return err
	}
	if len(all) != len(batch) {
		return fmt.Errorf("%d answers for %d renewals", len(all), len(batch))
	}
	for i, holds := range all {
		verdicts[i] = watchdog.Gone
		if holds > 0 {
			verdicts[i] = watchdog.Renewed
		}
	}
	return nil
}

// renewSome renews a batch, or the halves of one that Redis refuses as a whole: a right that is missing for one lock
// must not cost the others their lease. Renewals without a verdict are tried again.
func (cl scriptRunner) renewSome(ctx context.Context, by redislink.Node, batch []watchdog.Renewal, verdicts []watchdog.Verdict) error {
	err := cl.renewAll(ctx, by, batch, verdicts)
	if len(batch) == 1 || !isFinal(err) && !isHalfMoved(err) {
		return err
	}
	half := len(batch) / 2
	first := cl.renewSome(ctx, by, batch[:half], verdicts[:half])
	second := cl.renewSome(ctx, by, batch[half:], verdicts[half:])
	if first != nil && second != nil {
		return err
	}
	return nil
}
