package lockcmds

import (
	"context"
	"fmt"

	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/watchdog"
)

// renew is the watchdog's round trip: one script for the whole batch, on the connection of one identity.
func (e *Engine) renew(ctx context.Context, by any, batch []watchdog.Renewal) ([]watchdog.Verdict, error) {
	verdicts := make([]watchdog.Verdict, len(batch))
	if err := e.renewSome(ctx, by.(redislink.Node), batch, verdicts); err != nil {
		return nil, err
	}
	return verdicts, nil
}

// renewAll is one script.
func (e *Engine) renewAll(ctx context.Context, by redislink.Node, batch []watchdog.Renewal, verdicts []watchdog.Verdict) error {
	call := make(script.Renew, len(batch))
	for i, r := range batch {
		call[i] = script.Renewal{Key: r.Key, Owner: r.Owner, Fence: r.Fence, Lease: r.TTL}
	}
	v, err := e.runAs(ctx, by, call.Call())
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
