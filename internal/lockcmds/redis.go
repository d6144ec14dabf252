package lockcmds

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/resp"
)

// redisError is an error reply of Redis, to be passed on as it is.
type redisError = redislink.Refusal

// asRefusal finds the error reply of Redis in err.
func asRefusal(err error) (redisError, bool) {
	var refusal redisError
	ok := errors.As(err, &refusal)
	return refusal, ok
}

// isOverwritten reports whether the key holds no lock but something else: who held a lock there has lost it.
func isOverwritten(err error) bool {
	refusal, _ := asRefusal(err)
	return strings.HasPrefix(string(refusal), "WRONGTYPE ")
}

// own is an engine's own connections.
type own struct{ redislink.Topology }

// run runs a script on the node of its keys. Errors are a redisError, or wrap ErrUnsent or ErrInDoubt.
func (o own) run(ctx context.Context, s *Script, keys, args []string) (answer, error) {
	return runOn(ctx, o.Node(keys[0]), s, keys, args)
}

// runOn runs a script on a node.
func runOn(ctx context.Context, node redislink.Node, s *Script, keys, args []string) (answer, error) {
	a, err := answerOf(node.Eval(ctx, s, keys, args))
	if err != nil {
		if refusal, refused := asRefusal(err); refused {
			return nil, refusal
		}
		return nil, fmt.Errorf("run %s: %w", s.name, err)
	}
	return a, nil
}

// answer is what every script but info.lua returns: integers, status first. The usual end of an acquire or a release comes
// as a bare fence, short for {1, fence, 1}: an array costs Redis a microsecond more.
type answer []int64

const errStrange = redisError("ERR unexpected answer of a lock script")

// answerOf turns what a Call's Done is given into an answer or an error as own.run has them.
func answerOf(reply resp.Value, err error) (answer, error) {
	if err != nil {
		return nil, err
	}
	if reply.IsError() {
		return nil, redisError(reply.Str)
	}
	if reply.Kind == resp.Integer {
		return answer{1, reply.Int, 1}, nil
	}
	out := make(answer, len(reply.Elems))
	for i, e := range reply.Elems {
		out[i] = e.Int
	}
	if len(out) == 0 {
		return nil, errStrange
	}
	return out, nil
}

// at returns the number at position i, 0 behind the end.
func (a answer) at(i int) int64 {
	if i < len(a) {
		return a[i]
	}
	return 0
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

// millis is a length of time for a script, at least 1 unless it is 0.
func millis(d time.Duration) string {
	if d > 0 && d < time.Millisecond {
		d = time.Millisecond
	}
	return itoa(d.Milliseconds())
}
