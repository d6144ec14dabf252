package lockcmds

import (
	"context"
	"fmt"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// Renew is the watchdog's round trip: one script for the whole batch of one kind of lock at one redislink.Node.
func (cl scriptRunner) Renew(
	ctx context.Context, of watchdog.Group, batch []watchdog.Renewal,
) ([]watchdog.Verdict, error) {
	verdicts := make([]watchdog.Verdict, len(batch))
	if err := cl.renewSome(ctx, of, batch, verdicts); err != nil {
		return nil, err
	}
	return verdicts, nil
}

// renewAll is one script.
func (cl scriptRunner) renewAll(
	ctx context.Context, of watchdog.Group, batch []watchdog.Renewal, verdicts []watchdog.Verdict,
) error {
	renewals := make([]script.Renewal, len(batch))
	for i, r := range batch {
		h := r.Of.(*watchedHold) // its names do not change
		renewals[i] = script.Renewal{Key: h.Lock, Owner: h.Owner, Fence: h.Fence, Lease: r.TTL, Note: h.own()}
	}
	kind := of.Kind.(lockKind)
	call := kind.Renew(script.Renew{Renewals: renewals, Shared: kind.Shares()})
	v, err := cl.runOn(ctx, of.By.(redislink.Node), call)
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
			batch[i].Of.(*watchedHold).noted.Store(true)
		}
	}
	return nil
}

// renewSome renews a batch, or the halves of one that Redis refuses as a whole: a right that is missing for one lock
// must not cost the others their lease. Renewals without a verdict are tried again.
func (cl scriptRunner) renewSome(
	ctx context.Context, of watchdog.Group, batch []watchdog.Renewal, verdicts []watchdog.Verdict,
) error {
	err := cl.renewAll(ctx, of, batch, verdicts)
	if len(batch) == 1 || !isFinal(err) && !isHalfMoved(err) {
		return err
	}
	half := len(batch) / 2
	first := cl.renewSome(ctx, of, batch[:half], verdicts[:half])
	second := cl.renewSome(ctx, of, batch[half:], verdicts[half:])
	if first != nil && second != nil {
		return err
	}
	return nil
}
