//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// claims are what every client proves, with the defaults of its library.
var claims = []string{
	"connect",      // PING, SET, GET; a value of all 256 bytes; a value of 1 MB
	"pipeline",     // 1,000 commands in one pipeline, replies in order, an error among them
	"transaction",  // WATCH, MULTI, EXEC
	"watch",        // EXEC is refused after somebody else wrote to a watched key
	"pubsub",       // 100 messages in order, by channel and by pattern; unsubscribe
	"blocking-pop", // BLPOP wakes upon a push from another connection, and times out
	"script",       // EVAL, EVALSHA, NOSCRIPT after SCRIPT FLUSH
	"mixed",        // operations: same replies as from a direct connection
	"lock",         // LOCK, TRYLOCK and FAIRLOCK answer a fence; fences increase; UNLOCK answers 1
	"lock-reentry", // each LOCK is an owner of its own, whose handle is the fence; a named OWNER acquires again
	"lock-busy",    // another connection: TRYLOCK and LOCK WAIT answer null, UNLOCK answers NOTHELD
	"lock-wait",    // a LOCK that waits is granted upon UNLOCK by another connection
	"lock-fair",    // three FAIRLOCKs that wait are granted in the order of asking
	"lock-hangup",  // GRACE 0: closing the holder's connection wakes the waiter
	"lock-lost",    // UNLOCK after the lease has run out, or the key was deleted, answers LOSTLEASE
	"lock-owner",   // OWNER: acquired on one connection, released on another
}

// Clients for Node prove "lock-tasks", too: of three tasks on one connection none hangs, because a LOCK that waits for the
// task before it is refused when that task sends its next command.

// programLimit bounds one client's program.
const programLimit = 2 * time.Minute

// runClaims runs a client's program and turns each claim that it reports into a subtest of t.
func runClaims(t *testing.T, want []string, cmd *exec.Cmd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programLimit)
	defer cancel()
	stdout, stderr, err := run(ctx, cmd)
	reportClaims(t, want, stdout)
	if err != nil {
		t.Errorf("%s: %v\n%s", cmd.Path, err, last(stderr, 4096))
	}
}

// reportClaims turns each claim in the output of a program into a subtest of t.
func reportClaims(t *testing.T, want []string, stdout []byte) {
	t.Helper()
	reported := map[string]string{} // claim to reason; no reason: it holds
	for lines := bufio.NewScanner(bytes.NewReader(stdout)); lines.Scan(); {
		verdict, rest, _ := strings.Cut(lines.Text(), " ")
		claim, reason, _ := strings.Cut(rest, ": ")
		switch verdict {
		case "ok":
			claim, note, _ := strings.Cut(claim, " ")
			reported[claim] = ""
			if note != "" {
				t.Logf("%s: %s", claim, note)
			}
		case "FAIL":
			reported[claim] = reason + " "
		default:
			t.Log(lines.Text())
		}
	}
	for _, claim := range want {
		t.Run(claim, func(t *testing.T) {
			reason, ok := reported[claim]
			switch {
			case !ok:
				t.Error("the program did not report this claim")
			case reason != "":
				t.Error(reason)
			}
		})
		delete(reported, claim)
	}
	for claim, reason := range reported {
		t.Errorf("the program reported a claim that nobody asked for: %s %s", claim, reason)
	}
}

// run runs a command until ctx ends and returns what it wrote.
func run(ctx context.Context, cmd *exec.Cmd) (stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second // children of a killed program may hold its output open
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err = cmd.Wait()
	return out.Bytes(), errs.Bytes(), err
}

func last(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
