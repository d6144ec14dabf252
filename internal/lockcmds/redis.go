package lockcmds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"lockproxy/internal/resp"
)

const (
	// answerLimit bounds one round trip of the engine's own client; afterwards the connection counts as broken.
	answerLimit = 5 * time.Second
	// dialPause is how long a failed attempt to connect stands for the next ones, so that a worker per lock does not
	// dial a dead server.
	dialPause = 50 * time.Millisecond
	// A connection of the engine carries scripts of a few hundred bytes and answers of a few dozen.
	redisBuffer = 16 << 10
)

// own is the engine's own client: one connection for commands, one for subscriptions. It is made when it is first
// needed, because Redis may be down when the proxy starts, and connects again by itself afterwards.
type own struct {
	option rueidis.ClientOption // immutable

	mu     sync.Mutex // held while connecting
	client rueidis.Client
	failed time.Time // of the latest failure to connect
	err    error
	closed bool
}

func newOwn(option rueidis.ClientOption) *own {
	option.ForceSingleClient = true
	option.DisableRetry = true // a script must never be repeated behind our back
	option.DisableCache = true
	option.PipelineMultiplex = -1 // one connection, so that awaited calls keep their order
	option.BlockingPoolSize = 2   // the dedicated connection for subscriptions, and one more while it is replaced
	option.RingScaleEachConn = 8
	option.ReadBufferEachConn = redisBuffer
	option.WriteBufferEachConn = redisBuffer
	option.ConnWriteTimeout = answerLimit
	option.ClientSetInfo = rueidis.DisableClientSetInfo
	return &own{option: option}
}

// get returns the client. The error wraps ErrUnsent.
func (o *own) get() (rueidis.Client, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.client != nil:
		return o.client, nil
	case o.closed:
		return nil, fmt.Errorf("client is closed: %w", ErrUnsent)
	case o.err != nil && time.Since(o.failed) < dialPause:
		return nil, o.err
	}
	client, err := rueidis.NewClient(o.option)
	if err != nil {
		if client != nil {
			client.Close()
		}
		o.failed, o.err = time.Now(), fmt.Errorf("connect: %w: %w", ErrUnsent, err)
		return nil, o.err
	}
	o.client, o.err = client, nil
	return client, nil
}

func (o *own) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	if o.client != nil {
		o.client.Close()
		o.client = nil
	}
}

// redisError is an error reply of Redis, to be passed on as it is.
type redisError string

func (e redisError) Error() string { return string(e) }

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

// unsent reports whether a failed command certainly did not reach Redis.
func unsent(err error) bool {
	var op *net.OpError
	return errors.Is(err, ErrUnsent) || (errors.As(err, &op) && op.Op == "dial")
}

// run executes a script on the engine's own connection. Errors are a redisError, or wrap ErrUnsent or ErrInDoubt.
func (o *own) run(ctx context.Context, s *Script, keys, args []string) (answer, error) {
	client, err := o.get()
	if err != nil {
		return nil, err
	}
	reply, err := s.lua.Exec(ctx, client, keys, args).ToMessage()
	if err != nil {
		return nil, classify("run "+s.name, err)
	}
	if reply.IsInt64() {
		fence, err := reply.AsInt64()
		return answer{1, fence, 1}, err
	}
	numbers, err := reply.AsIntSlice()
	if err != nil || len(numbers) == 0 {
		return nil, errStrange
	}
	return numbers, nil
}

// classify sorts an error of rueidis into the three kinds that callers tell apart.
func classify(what string, err error) error {
	if refusal, ok := rueidis.IsRedisErr(err); ok {
		return redisError(refusal.Error())
	}
	if unsent(err) {
		return fmt.Errorf("%s: %w: %w", what, ErrUnsent, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrInDoubt, err)
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
