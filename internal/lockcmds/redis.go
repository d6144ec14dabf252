package lockcmds

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// asRefusal finds the error reply of Redis in err.
func asRefusal(err error) (script.Error, bool) {
	var refusal script.Error
	ok := errors.As(err, &refusal)
	return refusal, ok
}

func isRefusal(err error) bool {
	_, ok := asRefusal(err)
	return ok
}

// isOverwritten reports whether the key holds no lock but something else: who held a lock there has lost it.
func isOverwritten(err error) bool {
	refusal, _ := asRefusal(err)
	return strings.HasPrefix(string(refusal), "WRONGTYPE ")
}

// own is an engine's own connections.
type own struct{ redislink.Topology }

// run runs a script on the node of its keys. Errors wrap ErrUnsent or ErrInDoubt; the reply may be Redis's refusal.
func (o own) run(ctx context.Context, c script.Call) (resp.Value, error) {
	return runOn(ctx, o.Node(c.Keys[0]), c)
}

// runOn runs a script on a node.
func runOn(ctx context.Context, node redislink.Node, c script.Call) (resp.Value, error) {
	v, err := node.Eval(ctx, c.Script, c.Keys, c.Args)
	if err != nil {
		err = fmt.Errorf("run %s: %w", c.Name(), err)
	}
	return v, err
}

// runFor runs a script on the node of its keys and decodes its answer. Errors are a script.Error, or those of run.
func runFor[A any](ctx context.Context, o own, c script.Call, decode func(resp.Value) (A, error)) (A, error) {
	v, err := o.run(ctx, c)
	return decoded(v, err, decode)
}

// decoded is the answer in a reply. Errors are a script.Error, or the one that came instead of a reply.
func decoded[A any](v resp.Value, err error, decode func(resp.Value) (A, error)) (a A, _ error) {
	if err != nil {
		return a, err
	}
	return decode(v)
}

// appendFailure appends the error reply for a script that failed.
func appendFailure(dst []byte, err error) []byte {
	refusal, refused := asRefusal(err)
	switch {
	case refused:
		return resp.AppendRawError(dst, string(refusal))
	case errors.Is(err, ErrUnsent):
		return resp.AppendError(dst, resp.NoUpstream, "nothing was sent")
	default:
		return resp.AppendError(dst, resp.InDoubt, "sent, but no answer came")
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
