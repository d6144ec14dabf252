package lockcmds

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// scriptRunner is the engine's client of Redis: its own connections.
type scriptRunner struct{ redislink.Topology }

// run runs a script on the node of its keys. Errors wrap ErrUnsent or ErrInDoubt; the reply may be Redis's refusal.
func (cl scriptRunner) run(ctx context.Context, c script.Call) (resp.Value, error) {
	return cl.runOn(ctx, cl.Node(c.Keys[0]), c)
}

func (cl scriptRunner) runOn(ctx context.Context, node redislink.Node, c script.Call) (resp.Value, error) {
	c = c.On(cl.Servers())
	v, err := node.Eval(ctx, c.Script, c.Keys, c.Args)
	if err != nil {
		err = fmt.Errorf("run %s: %w", c.Name(), err)
	}
	return v, err
}

// runFor runs a script on the node of its keys and decodes its answer. Errors are a script.Error, or wrap ErrUnsent or
// ErrInDoubt.
func runFor[A any](ctx context.Context, cl scriptRunner, c script.Call, decode func(resp.Value) (A, error)) (A, error) {
	v, err := cl.run(ctx, c)
	return decoded(v, err, decode)
}

// decoded is the answer in a reply. Errors are a script.Error, or the one that came instead of a reply.
func decoded[A any](v resp.Value, err error, decode func(resp.Value) (A, error)) (a A, _ error) {
	if err != nil {
		return a, err
	}
	return decode(v)
}

// asRefusal finds the error reply of Redis in err.
func asRefusal(err error) (script.Error, bool) {
	if err == nil {
		return "", false // without an allocation
	}
	var refusal script.Error
	ok := errors.As(err, &refusal)
	return refusal, ok
}

// isOverwritten reports whether the key holds no lock but something else. A session that held a lock there has lost it.
func isOverwritten(err error) bool {
	refusal, _ := asRefusal(err)
	return strings.HasPrefix(string(refusal), "WRONGTYPE ")
}

// isPostponed reports whether a cluster cannot carry something out at present that needs a hash slot: the slot is being
// moved, or no server serves it.
func isPostponed(err error) bool {
	refusal, _ := asRefusal(err)
	return strings.HasPrefix(string(refusal), "TRYAGAIN ") || strings.HasPrefix(string(refusal), "CLUSTERDOWN ")
}

// isBusy reports whether Redis refuses everything at present: it loads its data, or a script runs for long.
func isBusy(err error) bool {
	refusal, _ := asRefusal(err)
	return strings.HasPrefix(string(refusal), "LOADING ") || strings.HasPrefix(string(refusal), "BUSY ")
}

// isHalfMoved reports whether a call of several keys cannot be carried out because their hash slot is being moved. A
// call of one key can.
func isHalfMoved(err error) bool {
	refusal, _ := asRefusal(err)
	return strings.HasPrefix(string(refusal), "TRYAGAIN ")
}

// isFinal reports whether Redis refuses something for good, and not because of a state that passes.
func isFinal(err error) bool {
	refusal, refused := asRefusal(err)
	code, _, _ := strings.Cut(string(refusal), " ")
	switch code {
	case "LOADING", "BUSY", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS", "OOM", "CLUSTERDOWN", "TRYAGAIN":
		return false
	}
	return refused
}
