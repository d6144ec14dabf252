package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Grant is what a later process needs to release a grant. Texts are bytes, because JSON keeps no others than those of
// UTF-8.
type Grant struct {
	URL          []byte `json:"url"`
	PasswordFile []byte `json:"password_file,omitempty"`
	Key          []byte `json:"key"`
	Owner        []byte `json:"owner"`
	Fence        int64  `json:"fence"`
	Shared       bool   `json:"shared,omitempty"`
	Most         int    `json:"most,omitempty"`

	Until time.Time `json:"until,omitzero"` // the lock is kept until then; zero: it is released
}

// Holder is a lock at the proxy. Its methods are called by one goroutine at a time.
//
// It has an OWNER of its own, so the lock can be kept over a new connection.
//
//	New ──► Lock ──► Extend, again and again ──► Release
//
// It starts no goroutine and decides nothing: its caller knows when to extend, and what a loss means.
type Holder struct {
	Target Target
	Key    string
	Owner  string
	Shared bool   // it is held beside other shared holders
	Most   int    // holders that there may be (LIMIT): it has a permit, known by its fence; 0: it is no such lock
	Note   string // of the lock
	Lease  time.Duration
	Limit  time.Duration // MAXHOLD; 0: none
	Least  time.Duration // how long the lock is kept, even without a connection
	Fence  int64         // of the grant; 0: there is none yet

	conn *Conn // nil: none
}

// Answers of the proxy that are not failures.
var (
	errBusy = errors.New("another client has the lock")
	errLost = errors.New("the lock was lost")
)

// newHolder returns a holder of a new OWNER, without a connection.
func newHolder(t Target, key string, lease time.Duration) *Holder {
	host, _ := os.Hostname()
	if len(host) > 64 {
		host = host[:64]
	}
	return &Holder{Target: t, Key: key, Lease: lease, Owner: fmt.Sprintf("exec:%s:%d:%s", host, os.Getpid(), rand.Text())}
}

// longestNote is the longest note that a proxy takes, in bytes.
const longestNote = 256

// noteOf says on which host which process runs a command. The arguments are left out: they may be secret.
func noteOf(command string) string {
	host, _ := os.Hostname()
	note := fmt.Sprintf("%s pid %d: %s", host, os.Getpid(), filepath.Base(command))
	return note[:min(len(note), longestNote)]
}

func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// Connect has a connection, perhaps a new one.
func (h *Holder) Connect(ctx context.Context) (err error) {
	if h.conn == nil {
		h.conn, err = Dial(ctx, h.Target, "lockproxy-exec")
	}
	return err
}

// Disconnect closes a connection that is of no more use.
func (h *Holder) Disconnect() {
	if h.conn != nil {
		h.conn.Close()
		h.conn = nil
	}
}

// Conn is the connection; nil: there is none.
func (h *Holder) Conn() *Conn { return h.conn }

// about is a command about this owner's hold, with further options.
func (h *Holder) about(verb string, options ...string) []string {
	args := []string{verb, h.Key, "OWNER", h.Owner}
	if h.Shared {
		args = append(args, "SHARED")
	}
	return append(args, options...)
}

func (h *Holder) byFence() []string { return []string{"FENCE", strconv.FormatInt(h.Fence, 10)} }

// do sends a command. If the connection fails, it is closed.
func (h *Holder) do(ctx context.Context, args ...string) (reply int64, null bool, err error) {
	if err := h.Connect(ctx); err != nil {
		return 0, false, err
	}
	v, err := h.conn.Do(ctx, args...)
	var refusal Error
	if err != nil && !errors.As(err, &refusal) {
		h.Disconnect()
	}
	return v.Int, v.Null, err
}

// Lock acquires the lock and makes sure of it: sure is the time when the extension was sent that has confirmed the
// grant. GRACE keeps the lease as long as it is, because the holder counts on it while it connects again.
func (h *Holder) Lock(ctx context.Context, verb string, wait time.Duration) (sure time.Time, err error) {
	args := h.about(verb, "GRACE", h.grace())
	if h.Most > 0 {
		args = append(args, "LIMIT", strconv.Itoa(h.Most))
	}
	if wait >= 0 {
		args = append(args, "WAIT", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	if h.Note != "" {
		args = append(args, "NOTE", h.Note)
	}
	if h.Limit > 0 {
		args = append(args, "MAXHOLD", millis(h.Limit+h.Lease))
	}
	fence, null, err := h.do(ctx, args...)
	switch {
	case err != nil:
		return sure, err
	case null:
		return sure, errBusy
	}
	h.Fence = fence
	ctx, cancel := context.WithTimeout(ctx, h.Lease)
	defer cancel()
	return h.Extend(ctx)
}

// Extend gives the lock a new lease, over a new connection if need be. It returns when it was asked for. errLost: the
// lock is not ours.
//
// A permit is not taken again over the new connection: that would be one more. No proxy renews it any more, but each
// extension does.
func (h *Holder) Extend(ctx context.Context) (sentAt time.Time, err error) {
	if h.conn == nil && h.Most == 0 { // the old one has ended: the new one must hold the lock, or no proxy renews it
		fence, null, err := h.do(ctx, h.about("LOCK", "GRACE", h.grace(), "WAIT", "0")...)
		switch {
		case err != nil:
			return sentAt, h.judge(err)
		case null:
			return sentAt, errLost
		case fence != h.Fence:
			_, _, _ = h.do(ctx, h.about("UNLOCK")...)
			return sentAt, errLost
		}
	}
	sentAt = time.Now()
	return sentAt, h.extend(ctx, h.Lease)
}

// extend gives the lock that lease.
func (h *Holder) extend(ctx context.Context, lease time.Duration) error {
	args := h.about("EXTENDLOCK", "PX", millis(lease))
	if h.Most > 0 {
		args = append(args, h.byFence()...)
	}
	_, _, err := h.do(ctx, args...)
	return h.judge(err)
}

// grace is the most that is left of the lease without a connection.
func (h *Holder) grace() string { return millis(max(h.Lease, h.Least)) }

// judge tells a loss from a failure.
func (h *Holder) judge(err error) error {
	for _, code := range []string{"NOTHELD", "LOSTLEASE", "WRONGTYPE"} {
		if isCode(err, code) {
			return errLost
		}
	}
	return err
}

// End keeps the lock until that moment, without a connection, or releases it if the moment is over. errLost: there was
// none.
func (h *Holder) End(ctx context.Context, until time.Time) error {
	for {
		rest := time.Until(until)
		if rest < time.Millisecond {
			return h.Release(ctx)
		}
		err := h.extend(ctx, rest)
		if err == nil {
			h.Disconnect() // or the proxy renews it
		}
		if err == nil || errors.Is(err, errLost) || h.pause(ctx) != nil {
			return err
		}
	}
}

// Release releases all holds: there is one for each connection that has been used. errLost: there was none.
func (h *Holder) Release(ctx context.Context) error {
	args := h.about("UNLOCK")
	if h.Fence != 0 {
		args = append(args, h.byFence()...)
	}
	asked := false
	for {
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
}

// pause waits a moment before a question is repeated.
func (h *Holder) pause(ctx context.Context) error {
	select {
	case <-time.After(100 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
