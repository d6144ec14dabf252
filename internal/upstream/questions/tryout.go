package questions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
)

// errSentinel says that the address has the wrong form.
var errSentinel = errors.New("it is a Sentinel: its address is sentinel://host:port,host:port/name")

// TryOut asks for everything that the proxy needs of Redis. lent: clients use the proxy's own user, which then needs the rights of the lock
// commands, too. The error names each right that is missing.
func (a *Asker) TryOut(ctx context.Context, lent bool) error {
	if err := a.Probe(ctx); err != nil {
		return err
	}
	asked := [][]string{{"PING"}, {"COMMAND", "COUNT"}}
	if lent {
		asked = append(asked, []string{"EVAL", "return redis.call('EXISTS', KEYS[1])", "1", "lockproxy:probe"},
			[]string{"SUBSCRIBE", "redisson_lock__channel:{lockproxy:probe}"})
	}
	nc, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer a.Dialer.HangUp(nc)
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })() // ends the questions
	switch reply, err := a.Dialer.Ask(nc, "ROLE"); {
	case err != nil:
		return err
	case bytes.HasPrefix(reply, []byte("*2\r\n$8\r\nsentinel")):
		return errSentinel
	}
	var missing []error
	for _, question := range asked {
		reply, err := a.Dialer.Ask(nc, question...)
		if err != nil {
			return err
		}
		if line := strings.TrimSpace(string(reply)); isDenied(line) && (lent || !strings.HasPrefix(line, "-NOAUTH ")) {
			missing = append(missing, fmt.Errorf("%s: %s", question[0], line[1:]))
		}
	}
	return errors.Join(missing...)
}
