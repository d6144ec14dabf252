package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/cli/process"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// runner is a command under its lock. Its fields belong to the goroutine of run; holder belongs to the extension on its
// way, if there is one.
type runner struct {
	p       *program
	lease   time.Duration
	holder  *Holder
	renewal *lockRenewal
	command *process.Command
	answers chan answer // of the extension on its way
	asking  bool
	giveUp  context.CancelFunc // of the extension on its way
	trouble error              // of the last extension; nil: it has succeeded, or the lock was lost
	told    bool               // the user knows why the command is ended
	until   time.Time          // the lock is kept until then, even if the command has ended
	lost    string             // the proxy's word for the reason of a loss
}

// answer is the outcome of an acquire or an extension.
type answer struct {
	sentAt time.Time
	err    error
}

// run runs the command to its end and returns the exit code.
func (r *runner) run(path string, args []string, grant Grant, signals <-chan os.Signal) int {
	note, err := json.Marshal(grant)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	r.answers = make(chan answer, 1)
	r.command, err = process.Start(process.Options{
		Path: path, Args: args, Env: environment(r.holder), Guard: []string{os.Args[0], guardName}, Note: note,
	})
	if err != nil {
		_ = r.release(time.Time{})
		return r.p.fail(ExitNoExec, "%v", err)
	}
	exit := r.supervise(signals)
	ended := time.Now()
	if r.asking {
		hung := time.AfterFunc(releaseLimit, r.giveUp)
		r.answered(<-r.answers)
		hung.Stop()
	}
	code := r.finish(exit, ended)
	r.command.End()
	if exit.Signal == os.Interrupt && code == exit.Code {
		r.holder.Disconnect()
		r.p.end()
		process.EndBy(os.Interrupt)
	}
	return code
}

// environment is that of the command. The lock of an exec around this one is not mentioned any more.
func environment(h *Holder) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "LOCK_KEY=") || strings.HasPrefix(entry, "LOCK_FENCE=")
	})
	return append(env, "LOCK_KEY="+h.Key, "LOCK_FENCE="+strconv.FormatInt(h.Fence, 10))
}

// supervise passes signals on, keeps the lock, and ends the command if it cannot.
func (r *runner) supervise(signals <-chan os.Signal) process.Exit {
	for {
		due := r.step()
		var pushes <-chan resp.Value
		var closed <-chan struct{}
		if conn := r.conn(); conn != nil {
			pushes, closed = conn.Pushes(), conn.Closed()
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case exit := <-r.command.Ended():
			timer.Stop()
			return exit
		case sig := <-signals:
			r.command.Pass(sig)
		case a := <-r.answers:
			r.answered(a)
		case push := <-pushes:
			r.pushed(push)
		case <-closed:
			r.trouble = fmt.Errorf("%s: %w", r.holder.Target.Addr, errClosed)
			r.holder.Disconnect()
			r.renewal.Failed(time.Now())
		case <-timer.C:
		}
		timer.Stop()
	}
}

// conn is the connection, if there is one that no extension uses.
func (r *runner) conn() *Conn {
	if r.asking {
		return nil
	}
	return r.holder.Conn()
}

// step does what is due, and returns when something is due again.
func (r *runner) step() time.Time {
	for {
		action, wake := r.renewal.Step(time.Now())
		switch action {
		case actExtend:
			r.extend()
		case actTerminate:
			r.command.Terminate()
			r.explain()
		case actKill:
			r.command.Kill()
			r.explain()
		case actNone:
			return wake
		}
	}
}

// words say why a command is ended.
var words = map[Reason]string{
	Taken:   "the lock was lost",
	Silence: "the proxy does not confirm the lock any more",
	heldOut: "--max-hold is over",
}

// losses say what the reasons of a push mean.
var losses = map[string]string{
	"forced":   "FORCEUNLOCK has removed it",
	"gone":     "its key was removed, or written by another client",
	"deadline": "the proxy could not renew it at Redis in time",
}

// explain tells why the command is ended, once.
func (r *runner) explain() {
	if r.told {
		return
	}
	r.told = true
	why := words[r.renewal.Reason()]
	if more := losses[r.lost]; r.renewal.Reason() == Taken && more != "" {
		why += ": " + more
	}
	if r.renewal.Reason() == Silence && r.trouble != nil {
		why += ": " + readable(r.trouble)
	}
	r.p.tell("%s: ending the command: %s", plain(r.holder.Key), why)
}

// extend asks for a new lease, on a goroutine.
func (r *runner) extend() {
	ctx, cancel := context.WithTimeout(r.p.ctx, Config{Lease: r.lease}.AttemptLimit())
	r.asking, r.giveUp = true, cancel
	go func() {
		defer cancel()
		sentAt, err := r.holder.Extend(ctx)
		r.answers <- answer{sentAt, err}
	}()
}

// answered takes the outcome of an extension.
func (r *runner) answered(a answer) {
	r.asking = false
	switch {
	case a.err == nil:
		r.trouble = nil
		r.renewal.Extended(a.sentAt)
	case errors.Is(a.err, errLost):
		r.renewal.Lost(time.Now())
	default:
		r.trouble = a.err
		r.renewal.Failed(time.Now())
	}
}

// pushed takes a message of the proxy: "lock-lost key fence reason" is for us.
func (r *runner) pushed(v resp.Value) {
	about := func(i int) string { return string(v.Elems[i].Str) }
	if len(v.Elems) >= 3 && about(0) == "lock-lost" && about(1) == r.holder.Key && number(v.Elems[2]) == r.holder.Fence {
		if len(v.Elems) > 3 {
			r.lost = about(3)
		}
		r.renewal.Lost(time.Now())
	}
}

// number reads an integer in either form.
func number(v resp.Value) int64 {
	if v.Kind == resp.Integer {
		return v.Int
	}
	n, _ := strconv.ParseInt(string(v.Str), 10, 64) // 0 is no fence
	return n
}

// finish releases the lock and returns the exit code of a command that has ended at that moment.
func (r *runner) finish(exit process.Exit, ended time.Time) int {
	why, held := r.renewal.Reason(), r.renewal.Sure(ended)
	if why != Running {
		r.command.Kill() // processes that the command has left behind
	}
	if why == Taken || why == Silence { // the lease has ended, or is about to
		return ExitLost
	}
	err := r.release(r.until)
	switch {
	case why == heldOut && (held || err == nil): // a release by fence proves that it was held
		return ExitHeldOut
	case errors.Is(err, errLost), err != nil && !held:
		return r.p.fail(ExitLost, "%s: the lock was lost while the command ran", plain(r.holder.Key))
	case err != nil:
		r.p.tell("%s: held to the end of the command, but not released: it ends with its lease (%s)",
			plain(r.holder.Key), readable(err))
	}
	return exit.Code
}

// release releases the lock, or keeps it until that moment. No extension is on its way.
func (r *runner) release(until time.Time) error {
	ctx, cancel := context.WithTimeout(r.p.ctx, releaseLimit)
	defer cancel()
	return r.holder.End(ctx, until)
}
