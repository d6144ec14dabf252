package cli

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// reasonLimit bounds the question why the proxy closes connections.
const reasonLimit = 2 * time.Second

// why adds the reason to an error, if the proxy has closed the connection because Redis is away. It tells that without
// a login.
func why(ctx context.Context, t Target, err error) error {
	if !errors.Is(err, errClosed) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reasonLimit)
	defer cancel()
	if reason := Outage(ctx, t); reason != "" {
		return fmt.Errorf("%w: Redis is away: %s", err, reason)
	}
	return err
}
