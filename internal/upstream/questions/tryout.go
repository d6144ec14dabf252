package questions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
)

// These errors say that the address has the wrong form.
var (
	errSentinel = errors.New("it is a Sentinel: its address is sentinel://host:port,host:port/name")
	errNode     = errors.New("it is a node of a cluster, of which some nodes are named: cluster://host:port,host:port")
	errNoNode   = errors.New("it is no node of a cluster: its address is host:port")
)

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
	switch reply, err := a.Dialer.Ask(nc, "INFO", "cluster"); {
	case err != nil:
		return err
	case !a.Cluster && bytes.Contains(reply, []byte("\r\ncluster_enabled:1")):
		return errNode
	case a.Cluster && bytes.Contains(reply, []byte("\r\ncluster_enabled:0")):
		return errNoNode
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
