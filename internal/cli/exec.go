package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/internal/cli/process"
)

type execCommand struct {
	connection

	Wait    patience
	NoWait  bool
	Busy    int // the exit code if another client has the lock
	Quiet   bool
	Fair    bool
	Shared  bool
	Limit   int32
	Lease   time.Duration
	MinHold time.Duration
	MaxHold time.Duration
	Key     string
	Command []string
}

const execDetails = `COMMAND finds LOCK_KEY and LOCK_FENCE in its environment. The exit code is that of the command, or

  69   the proxy cannot be asked or refuses; the command was not started
  74   the lock was lost, and the command was ended
  75   another client has the lock; the command was not started (-E names another code)
  124  the command was ended after --max-hold
  126  the command cannot be executed; 127: there is none
  128+n  signal n has ended the command`

func (c *execCommand) flags(f *pflag.FlagSet) {
	c.connection.flags(f)
	f.VarP(&c.Wait, "wait", "w",
		"Longest wait for the lock, as in 10s; a number, as 0.5, is seconds. Without it: no limit. "+
			"Exit code 75: another client has the lock.")
	f.BoolVarP(&c.NoWait, "no-wait", "n", false, "Do not wait, as --wait 0s.")
	f.IntVarP(&c.Busy, "conflict-exit-code", "E", ExitBusy, "Exit `CODE` if another client has the lock.")
	f.BoolVar(&c.Quiet, "quiet", false, "Do not say that another client has the lock.")
	f.BoolVar(&c.Fair, "fair", false, "First come, first served (FAIRLOCK).")
	f.BoolVarP(&c.Shared, "shared", "s", false, "Hold the lock together with other shared holders, but with no exclusive one.")
	f.Int32Var(&c.Limit, "limit", 0, "Run at most `N` commands of this lock at the same time (LIMIT).")
	f.DurationVar(&c.Lease, "lease", 30*time.Second,
		"Lease of the lock. It is renewed while the command runs. If exec and its guard are killed, the lock ends within "+
			"this time; if this machine vanishes, twice the proxy's tcp.keepalive later at most.")
	f.DurationVar(&c.MinHold, "min-hold", 0,
		"Keep the lock for this time since its grant, even if the command has ended.")
	f.DurationVar(&c.MaxHold, "max-hold", 0, "End the command after this time. Exit code 124. 0s: no limit.")
	f.SetInterspersed(false) // what follows the command is its own
}

// arguments takes the key, further flags, and the command.
func (c *execCommand) arguments(f *pflag.FlagSet) error {
	switch {
	case f.NArg() == 0:
		return errors.New("no lock is named")
	case f.Arg(0) == "":
		return errNoName
	}
	c.Key = f.Arg(0)
	if err := f.Parse(f.Args()[1:]); err != nil {
		return err
	}
	c.Command = f.Args()
	switch {
	case len(c.Command) == 0:
		return fmt.Errorf("no command after the lock %s", plain(c.Key))
	case f.ArgsLenAtDash() < 0 && slices.Contains(c.Command, "--"):
		return fmt.Errorf("unexpected %s between the lock %s and --: exec takes one lock, then -- and the command",
			plain(c.Command[0]), plain(c.Key))
	case c.Busy < 0 || c.Busy > 255:
		return fmt.Errorf("--conflict-exit-code: %d is not between 0 and 255", c.Busy)
	case c.MaxHold > 0 && c.MinHold > c.MaxHold:
		return errors.New("--min-hold is longer than --max-hold")
	case f.Changed("limit") && c.Limit < 1:
		return fmt.Errorf("--limit: %d is less than 1", c.Limit)
	case c.Limit > 0 && c.Shared:
		return errors.New("--shared and --limit are two kinds of locks: name one")
	}
	if c.NoWait {
		c.Wait = patience{limited: true}
	}
	c.complete()
	return nil
}

// leastLease leaves the extensions of a lease some round trips.
const leastLease = time.Second

// run acquires the lock, runs the command, releases the lock.
func (c *execCommand) run(p *program) int {
	t, err := c.target()
	switch {
	case err != nil:
		return p.fail(ExitUsage, "%v", err)
	case strings.Trim(c.URL, "0123456789") == "":
		return p.fail(ExitUsage, "--url: %s is no address, and exec locks a key, no file", c.URL)
	case c.Lease < leastLease:
		return p.fail(ExitUsage, "--lease: %v is less than %v", c.Lease, leastLease)
	case c.MinHold < 0, c.MaxHold < 0, c.Wait.limit < 0:
		return p.fail(ExitUsage, "--wait, --min-hold and --max-hold are not negative")
	}
	path, err := process.Find(c.Command[0])
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return p.fail(ExitNotFound, "%v", err)
	case err != nil:
		return p.fail(ExitNoExec, "%v", err)
	}
	signals := make(chan os.Signal, 16)
	process.Listen(signals)
	defer signal.Stop(signals)

	h := newHolder(t, c.Key, c.Lease)
	h.Limit, h.Shared, h.Most, h.Least = c.MaxHold, c.Shared, int(c.Limit), c.MinHold
	h.Note = noteOf(c.Command[0])
	defer h.Disconnect()
	if c.within(p.ctx, h) {
		return c.busy(p, errWithin, "")
	}
	sure, code := c.acquire(p, h, signals)
	if sure.IsZero() {
		return code
	}
	r := &runner{
		p: p, lease: c.Lease, holder: h, renewal: newLockRenewal(Config{Lease: c.Lease, MaxHold: c.MaxHold}, sure),
	}
	if c.MinHold > 0 {
		r.until = sure.Add(c.MinHold)
	}
	return r.run(path, c.Command, Grant{
		URL: []byte(c.URL), PasswordFile: []byte(c.PasswordFile),
		Key: []byte(h.Key), Owner: []byte(h.Owner), Fence: h.Fence, Shared: h.Shared, Most: h.Most, Until: r.until,
	}, signals)
}

// The time for which a waiting exec does without a proxy that has been there, and the pause between two attempts.
const (
	awayLimit = 10 * time.Second
	awayPause = 250 * time.Millisecond
)

// errWithin says why an exec would wait for itself.
var errWithin = errors.New("the exec around this one has the lock, and waits for this one to end")

// within reports whether the command of another exec, which ends when this one does, has the lock: so its key, and its
// fence by the word of the proxy, say.
func (c *execCommand) within(ctx context.Context, h *Holder) bool {
	outer, err := strconv.ParseInt(os.Getenv("LOCK_FENCE"), 10, 64)
	if err != nil || os.Getenv("LOCK_KEY") != c.Key || h.Connect(ctx) != nil {
		return false
	}
	l, ok := c.look(ctx, h.Conn())
	held := l.Fence == outer || slices.ContainsFunc(l.Holders, func(one holder) bool { return one.Fence == outer })
	return ok && held && (!c.Shared || l.Mode == "exclusive") && c.Limit <= 1
}

// busy says that the lock cannot be had, and returns the exit code.
func (c *execCommand) busy(p *program, why error, who string) int {
	if !c.Quiet {
		p.tell("%s: %v%s", plain(c.Key), why, who)
	}
	return c.Busy
}

// acquire waits for the lock. If there is none, sure is zero, and code the exit code.
func (c *execCommand) acquire(p *program, h *Holder, signals <-chan os.Signal) (sure time.Time, code int) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	done := make(chan answer, 1)
	go func() {
		sure, err := c.await(ctx, h)
		done <- answer{sure, err}
	}()
	sig := os.Signal(unix.SIGWINCH)
	for sig == unix.SIGWINCH { // ends nothing
		select {
		case sig = <-signals:
		case a := <-done:
			return c.asked(ctx, p, h, a)
		}
	}
	cancel(errors.New("interrupted"))
	<-done
	c.giveBack(p, h) // the grant may have come at the same time
	if sig == os.Interrupt {
		h.Disconnect()
		p.end()
		process.EndBy(sig)
	}
	return time.Time{}, process.CodeOf(sig)
}

// asked is the end of acquire behind the proxy's answer.
func (c *execCommand) asked(ctx context.Context, p *program, h *Holder, a answer) (sure time.Time, code int) {
	switch {
	case a.err == nil:
		return a.sentAt, ExitOK
	case errors.Is(a.err, errBusy):
		return time.Time{}, c.busy(p, a.err, c.behind(ctx, h.Conn()))
	}
	return time.Time{}, p.fail(ExitUnreachable, "%s: %s", plain(c.Key), readable(why(ctx, h.Target, a.err)))
}

// holderLimit is the longest wait for the answer who has the lock.
const holderLimit = time.Second

// look asks who has the lock. false: it is free, or the proxy does not say.
func (c *execCommand) look(ctx context.Context, conn *Conn) (lock, bool) {
	if conn == nil {
		return lock{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, holderLimit)
	defer cancel()
	v, err := conn.Do(ctx, "LOCKINFO", c.Key)
	if err != nil || len(v.Elems) == 0 {
		return lock{}, false
	}
	return lockOf(v, c.Key), true
}

// behind says who has the lock, behind a colon; empty: the proxy does not say.
func (c *execCommand) behind(ctx context.Context, conn *Conn) string {
	l, ok := c.look(ctx, conn)
	if !ok {
		return ""
	}
	return ": " + l.who(time.Now())
}

// await asks for the lock, over a new connection if the proxy goes away meanwhile.
func (c *execCommand) await(ctx context.Context, h *Holder) (time.Time, error) {
	verb := "LOCK"
	if c.Fair {
		verb = "FAIRLOCK"
	}
	began, trouble := time.Now(), time.Time{}
	for {
		wait, limit := time.Duration(-1), awayLimit
		if c.Wait.limited {
			wait = max(c.Wait.limit-time.Since(began), 0)
			limit = min(limit, wait)
		}
		asked := time.Now()
		sure, err := c.attempt(ctx, h, verb, wait)
		var reply Error
		heard := errors.As(err, &reply) || errors.Is(err, errClosed)
		switch {
		case err == nil || errors.Is(err, errBusy):
			return sure, err
		case reply != "" && !temporary(reply):
			return sure, answered(err)
		case errors.Is(err, errLost): // taken away at once: ask again
		case !heard && trouble.IsZero():
			return sure, err // the proxy was never there
		case trouble.IsZero() || time.Since(asked) > awayLimit: // until now the request has waited
			trouble = time.Now()
		case time.Since(trouble) > limit:
			return sure, err
		}
		select {
		case <-time.After(awayPause):
		case <-ctx.Done():
			return sure, context.Cause(ctx)
		}
	}
}

// alivePause is the pause between two questions whether the proxy lives at which a request waits.
const alivePause = 10 * time.Second

// attempt asks for the lock once. The answer may be due in hours, so the proxy is asked meanwhile whether it lives.
func (c *execCommand) attempt(ctx context.Context, h *Holder, verb string, wait time.Duration) (time.Time, error) {
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watched, target := ctx, h.Target
	watch.Go(func() { watchProxy(watched, target, end) })
	defer watch.Wait()
	defer end(nil)
	if wait >= 0 {
		limited, cancel := context.WithTimeout(ctx, wait+askLimit)
		defer cancel()
		ctx = limited
	}
	return h.Lock(ctx, verb, wait)
}

// watchProxy ends a wait at a proxy that has twice not answered whether it lives. A proxy that takes no connections any
// more may still serve those that wait.
func watchProxy(ctx context.Context, t Target, end context.CancelCauseFunc) {
	for silent := false; ; {
		if !silent {
			select {
			case <-time.After(alivePause):
			case <-ctx.Done():
				return
			}
		}
		err := Alive(ctx, t)
		again := silent
		if _, silent = errors.AsType[silence](err); silent && again {
			end(err)
			return
		}
	}
}

// temporary reports whether the same request may succeed later, at this proxy or at another one behind the same
// address.
func temporary(e Error) bool {
	switch e.Code() {
	case "OVERLOADED", "LOADING", "MASTERDOWN", "READONLY", "BUSY", "TRYAGAIN", "CLUSTERDOWN":
		return true
	}
	return false
}

// releaseLimit bounds the release of a lock that the lease would end otherwise.
const releaseLimit = 5 * time.Second

// giveBack releases whatever the holder has, if it has something.
func (c *execCommand) giveBack(p *program, h *Holder) {
	ctx, cancel := context.WithTimeout(p.ctx, releaseLimit)
	defer cancel()
	if err := h.Connect(ctx); err == nil {
		_ = h.Release(ctx)
	}
}

// guardName is the subcommand that exec starts for the case of its own death.
const guardName = "exec-guard"

type guardCommand struct{ Socket int }

func (*guardCommand) flags(*pflag.FlagSet) {}

func (c *guardCommand) arguments(f *pflag.FlagSet) (err error) {
	c.Socket, err = strconv.Atoi(f.Arg(0))
	return err
}

// run waits for the end of exec. If that was its death, no process of the command is left afterwards, and the lock is
// released.
func (c *guardCommand) run(p *program) int {
	note, err := process.Guard(c.Socket)
	if err != nil {
		return p.fail(ExitUnreachable, "%v", err)
	}
	var g Grant
	if note == nil || json.Unmarshal(note, &g) != nil {
		return ExitOK
	}
	t, err := connection{URL: string(g.URL), PasswordFile: string(g.PasswordFile)}.target()
	if err != nil {
		return ExitUsage
	}
	h := &Holder{
		Target: t, Key: string(g.Key), Owner: string(g.Owner), Fence: g.Fence, Shared: g.Shared, Most: g.Most,
	}
	defer h.Disconnect()
	ctx, cancel := context.WithTimeout(p.ctx, releaseLimit)
	defer cancel()
	if h.End(ctx, g.Until) != nil {
		return ExitUnreachable // the lock ends with its lease
	}
	return ExitOK
}
