package lockcmds

import (
	"context"
	"fmt"

	"lockproxy/internal/watchdog"
)

// renew is the watchdog's round trip: one script for the whole batch.
func (e *Engine) renew(ctx context.Context, _ any, batch []watchdog.Renewal) ([]watchdog.Verdict, error) {
	keys := make([]string, len(batch))
	args := make([]string, 0, 3*len(batch))
	for i, r := range batch {
		keys[i] = r.Key
		args = append(args, r.Owner, itoa(r.Fence), millis(r.TTL))
	}
	a, err := e.own.run(ctx, e.scripts.renew, keys, args)
	if err != nil {
		return nil, err
	}
	if len(a) != len(batch) {
		return nil, fmt.Errorf("%d answers for %d renewals", len(a), len(batch))
	}
	verdicts := make([]watchdog.Verdict, len(a))
	for i, renewed := range a {
		verdicts[i] = watchdog.Gone
		if renewed == 1 {
			verdicts[i] = watchdog.Renewed
		}
	}
	return verdicts, nil
}
