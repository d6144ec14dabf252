package lockcmds

import (
	"context"
	"errors"
	"fmt"

	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
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

// runAs runs a script on the connection of the identity that acquired a hold last. If that identity's rights or connection do not
// suffice any more, the script runs on the connection of the identity that acquired it first.
func (e *Engine) runAs(ctx context.Context, by redislink.Node, c script.Call) (resp.Value, error) {
	v, err := runOn(ctx, by, c)
	if by != e.own.Node(c.Keys[0]) && (errors.Is(err, ErrUnsent) || v.IsError() && isFinal(script.Error(v.Str))) {
		return e.own.run(ctx, c)
	}
	return v, err
}

// renewSome renews a batch, or the halves of one that Redis refuses as a whole: a right that is missing for one lock must
// not cost the others their lease. Renewals without a verdict are tried again.
func (e *Engine) renewSome(ctx context.Context, by redislink.Node, batch []watchdog.Renewal, verdicts []watchdog.Verdict) error {
	err := e.renewAll(ctx, by, batch, verdicts)
	if len(batch) == 1 || !isFinal(err) {
		return err
	}
	half := len(batch) / 2
	first := e.renewSome(ctx, by, batch[:half], verdicts[:half])
	second := e.renewSome(ctx, by, batch[half:], verdicts[half:])
	if first != nil && second != nil {
		return err
	}
	return nil
}
