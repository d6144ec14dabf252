// Command lockproxy serves the Redis protocol in front of a Redis and adds lock commands.
//
//	arguments, environment, file ──load──► Config ──newServer──► proxy ──Run──► serves until a signal, drains, ends
//
// This package reads flags and configuration, wires the parts together, turns signals into a drain and the outcome
// into an exit code: 0 done, 1 failure, 2 usage or configuration. It decides nothing else.
//
// Goroutines: serve runs the proxy on one of its own and waits for it, except after a third signal, which ends the
// process at once.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/lockproxy/lockproxy/internal/cli"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program: it returns the exit code. Logs and errors go to stderr, the answers of --help, --version and
// --check go to stdout.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "help" { // help exec, help
		args = append(args[1:len(args):len(args)], "--help")
	}
	if cli.Is(args) {
		return cli.Run(ctx, args, stdout, stderr)
	}
	cmd, err := load(args)
	if err != nil {
		fmt.Fprintln(stderr, behind("lockproxy: ", err))
		return exitUsage
	}
	switch {
	case cmd.help != "":
		_, _ = io.WriteString(stdout, cmd.help)
		return exitOK
	case cmd.Version:
		fmt.Fprintln(stdout, "lockproxy", thisBuild())
		return exitOK
	case cmd.Connect && !cmd.Check:
		fmt.Fprintln(stderr, "lockproxy: --connect needs --check")
		return exitUsage
	case cmd.Check:
		return check(ctx, cmd, stdout, stderr)
	case cmd.Health:
		p := cmd.probe()
		err := p.health(ctx)
		if reason := cli.Outage(ctx, p.target); err == nil && reason != "" {
			fmt.Fprintln(stdout, "lockproxy: health: the proxy lives, redis is away:", reason)
		}
		return reported("health", err, stderr)
	case cmd.Ready:
		return reported("ready", cmd.probe().ready(ctx), stderr)
	}
	again := func() (Config, error) {
		next, err := load(args)
		return next.Config, err
	}
	return start(ctx, cmd.Config, again, stderr)
}

// reported is the exit code of a question to the running proxy, which has failed with err, or not. It prints err behind
// the flag's name.
func reported(flag string, err error, stderr io.Writer) int {
	if err != nil {
		fmt.Fprintf(stderr, "lockproxy: %s: %v\n", flag, err)
		return exitFailure
	}
	return exitOK
}
