package lockcmds

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// renew is the watchdog's round trip: one script for the whole batch of one kind of lock at one redislink.Node. The first
// renewal of a hold whose client has given no note says who has it.
func (e *keeper) renew(ctx context.Context, of watchdog.Group, batch []watchdog.Renewal) ([]watchdog.Verdict, error) {
	verdicts, renewals := make([]watchdog.Verdict, len(batch)), make([]script.Renewal, len(batch))
	host := e.defaults().NoteHost
	e.mu.Lock()
	for i, r := range batch {
		h := r.Of.(*table.Hold)
		renewals[i] = script.Renewal{Key: h.Lock, Owner: h.Owner, Fence: h.Fence, Lease: r.TTL}
		if c := h.Client(); host != "" && !h.Noted && c != (table.Client{}) {
			renewals[i].Note = cmp.Or(c.Name, c.Addr) + " via " + host
		}
	}
	e.mu.Unlock()
	err := e.client.renewSome(ctx, of, renewals, verdicts)
	if err != nil && slices.ContainsFunc(verdicts, func(v watchdog.Verdict) bool { return v != 0 }) {
		without := renewals[slices.Index(verdicts, 0)]
		e.entries.Write(zap.WarnLevel, "a lease is not renewed", "", logging.Text("key", without.Key), zap.Error(err))
		err = nil // it does not concern the whole batch
	}
	e.mu.Lock()
	for i, r := range batch {
		h := r.Of.(*table.Hold)
		h.Noted = h.Noted || renewals[i].Note != "" && verdicts[i] == watchdog.Renewed
	}
	e.mu.Unlock()
	return verdicts, err
}

// renewAll is one script.
func (cl scriptRunner) renewAll(
	ctx context.Context, of watchdog.Group, batch []script.Renewal, verdicts []watchdog.Verdict,
) error {
	kind := of.Kind.(lockKind)
	v, err := cl.runOn(ctx, of.By.(redislink.Node), kind.Renew(script.Renew{Renewals: batch, Shared: kind.Shares()}))
	all, err := decoded(v, err, script.DecodeRenewed)
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
// must not cost the others their lease. Renewals without a verdict are tried again; the error is that of the first one.
func (cl scriptRunner) renewSome(
	ctx context.Context, of watchdog.Group, batch []script.Renewal, verdicts []watchdog.Verdict,
) error {
	err := cl.renewAll(ctx, of, batch, verdicts)
	if len(batch) == 1 || !isFinal(err) && !isHalfMoved(err) {
		return err
	}
	half := len(batch) / 2
	err = cl.renewSome(ctx, of, batch[:half], verdicts[:half])
	return cmp.Or(err, cl.renewSome(ctx, of, batch[half:], verdicts[half:]))
}
