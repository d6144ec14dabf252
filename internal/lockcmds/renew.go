package lockcmds

import (
	"context"
	"fmt"

	"lockproxy/internal/lockcmds/redislink"
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
	keys := make([]string, len(batch))
	args := make([]string, 0, 3*len(batch))
	for i, r := range batch {
		keys[i] = r.Key
		args = append(args, r.Owner, itoa(r.Fence), millis(r.TTL))
	}
	a, err := e.runAs(ctx, by, e.scripts.renew, keys, args)
	if err != nil {
		return err
	}
	if len(a) != len(batch) {
		return fmt.Errorf("%d answers for %d renewals", len(a), len(batch))
	}
	for i, renewed := range a {
		verdicts[i] = watchdog.Gone
		if renewed == 1 {
			verdicts[i] = watchdog.Renewed
		}
	}
	return nil
}
