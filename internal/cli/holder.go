package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/cli/client"
)

// grantOf is what a later process needs to release a grant.
type grantOf struct {
	URL          string `json:"url"`
	PasswordFile string `json:"password_file,omitempty"`
	Key          string `json:"key"`
	Owner        string `json:"owner"`
	Fence        int64  `json:"fence"`
}

// holder is a lock at the proxy, held for an OWNER of its own. So the lock can be kept over a new connection.
type holder struct {
	target client.Target
	key    string
	owner  string
	lease  time.Duration
	limit  time.Duration // MAXHOLD; 0: none
	conn   *client.Conn  // nil: none
	fence  int64
}

// Answers of the proxy that are not failures.
var (
	errBusy = errors.New("another client has the lock")
	errLost = errors.New("the lock was lost")
)

func newHolder(t client.Target, key string, lease time.Duration) *holder {
	host, _ := os.Hostname()
	if len(host) > 64 {
		host = host[:64]
	}
	return &holder{target: t, key: key, lease: lease, owner: fmt.Sprintf("exec:%s:%d:%s", host, os.Getpid(), rand.Text())}
}

func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// connect has a connection, perhaps a new one.
func (h *holder) connect(ctx context.Context) (err error) {
	if h.conn == nil {
		h.conn, err = client.Dial(ctx, h.target, "lockproxy-exec")
	}
	return err
}

// disconnect closes a connection that is of no more use.
func (h *holder) disconnect() {
	if h.conn != nil {
		h.conn.Close()
		h.conn = nil
	}
}

// do sends a command. If the connection fails, it is closed.
func (h *holder) do(ctx context.Context, args ...string) (reply int64, null bool, err error) {
	if err := h.connect(ctx); err != nil {
		return 0, false, err
	}
	v, err := h.conn.Do(ctx, args...)
	var refusal client.Error
	if err != nil && !errors.As(err, &refusal) {
		h.disconnect()
	}
	return v.Int, v.Null, err
}

// lock acquires the lock and makes sure of it: until is the time when the extension was sent that has confirmed the grant. GRACE keeps
// the lease as long as it is, because the holder counts on it while it connects again.
func (h *holder) lock(ctx context.Context, verb string, wait time.Duration) (sure time.Time, err error) {
	args := []string{verb, h.key, "OWNER", h.owner, "GRACE", millis(h.lease)}
	if wait >= 0 {
		args = append(args, "WAIT", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	if h.limit > 0 {
		args = append(args, "MAXHOLD", millis(h.limit+h.lease))
	}
	fence, null, err := h.do(ctx, args...)
	switch {
	case err != nil:
		return sure, err
	case null:
		return sure, errBusy
	}
	h.fence = fence
	ctx, cancel := context.WithTimeout(ctx, h.lease)
	defer cancel()
	return h.extend(ctx)
}

// extend gives the lock a new lease, over a new connection if need be. It returns when it was asked for. errLost: the lock is not ours.
func (h *holder) extend(ctx context.Context) (sentAt time.Time, err error) {
	if h.conn == nil { // the old one has ended: the new one must hold the lock, or no proxy renews it
		fence, null, err := h.do(ctx, "LOCK", h.key, "WAIT", "0", "OWNER", h.owner, "GRACE", millis(h.lease))
		switch {
		case err != nil:
			return sentAt, h.judge(err)
		case null:
			return sentAt, errLost
		case fence != h.fence:
			_, _, _ = h.do(ctx, "UNLOCK", h.key, "OWNER", h.owner)
			return sentAt, errLost
		}
	}
	sentAt = time.Now()
	_, _, err = h.do(ctx, "EXTENDLOCK", h.key, "PX", millis(h.lease), "OWNER", h.owner)
	return sentAt, h.judge(err)
}

// judge tells a loss from a failure.
func (h *holder) judge(err error) error {
	for _, code := range []string{"NOTHELD", "LOSTLEASE", "WRONGTYPE"} {
		if client.IsCode(err, code) {
			return errLost
		}
	}
	return err
}

// mostHolds is more than a holder has: one for each connection that it has used.
const mostHolds = 1000

// release releases all holds. errLost: there was none.
func (h *holder) release(ctx context.Context) error {
	args := []string{"UNLOCK", h.key, "OWNER", h.owner}
	if h.fence != 0 {
		args = append(args, "FENCE", strconv.FormatInt(h.fence, 10))
	}
	asked := false
	for range mostHolds {
		left, _, err := h.do(ctx, args...)
		switch err = h.judge(err); {
		case err == nil && left == 1:
			return nil
		case errors.Is(err, errLost) && asked:
			return nil // an earlier request, whose answer is missing, has released it
		case errors.Is(err, errLost):
			return err
		case err != nil:
			asked = true
			if h.pause(ctx) != nil {
				return err
			}
		}
	}
	return errors.New("the lock has too many holds")
}

// pause waits a moment before a question is repeated.
func (h *holder) pause(ctx context.Context) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
