package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	nc, failed := open(ctx, t)
	if failed != nil {
		return err
	}
	c := talk(nc, t.Addr)
	defer c.Close()
	v, failed := c.Do(ctx, "INFO", "lockproxy")
	if failed != nil {
		return err
	}
	_, reason, _ := strings.Cut(string(v.Str), "upstream_error:")
	if reason, _, _ = strings.Cut(reason, "\r\n"); reason == "" {
		return err
	}
	return fmt.Errorf("%w: Redis is away: %s", err, reason)
}
