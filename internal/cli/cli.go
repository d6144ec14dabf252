// Package cli is the subcommands of the program, which ask a running proxy: exec, locks, info, unlock.
//
//	Run ─┬─► exec ──► holder (the lock at the proxy) + tenure (what to do when) + process (the command)
//	     ├─► exec-guard, which exec starts for the case of its own death
//	     └─► locks, info, unlock: one question, one answer
//
// Goroutines: exec has one for each extension of its lease, and waits for it.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes. A command under exec has its own exit code; these are told apart from it by their numbers, which are
// those of sysexits.h and of timeout(1).
const (
	ExitOK          = 0
	ExitNo          = 1 // info, unlock: there is no such lock
	ExitUsage       = 2
	ExitUnreachable = 69  // the proxy cannot be asked, or refuses; the command was not started
	ExitLost        = 74  // the lock was lost, or no proxy confirms it; the command was ended
	ExitBusy        = 75  // another client has the lock; the command was not started
	ExitHeldOut     = 124 // --max-hold is over; the command was ended
	ExitNoExec      = 126 // the command cannot be executed
	ExitNotFound    = 127 // there is no such command
)

// commands is the grammar of all subcommands.
type commands struct {
	Exec      execCommand   `cmd:"" help:"Hold a lock while a command runs."`
	Locks     locksCommand  `cmd:"" help:"List the locks that are held through the proxy."`
	Info      infoCommand   `cmd:"" help:"Show the holder of a lock. Exit code 1: it is free."`
	Unlock    unlockCommand `cmd:"" help:"Remove a lock of any holder, or with --owner one of that OWNER. Exit code 1: there was none."`
	ExecGuard guardCommand  `cmd:"" hidden:""`
}

// Is reports whether the arguments of the program begin with a subcommand.
func Is(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"exec", "locks", "info", "unlock", guardName}, args[0])
}

// connection is how the proxy is reached.
type connection struct {
	URL          string `name:"url" short:"u" env:"LOCKPROXY_URL" default:"redis://127.0.0.1:7379" placeholder:"URL" help:"The proxy: redis://user:password@host:port/db, rediss:// for TLS, unix:///path (${default})."`
	PasswordFile string `env:"LOCKPROXY_URL_PASSWORD_FILE" placeholder:"FILE" help:"File that holds the password, if it is not in the URL."`
}

// target reads the address.
func (c connection) target() (Target, error) {
	t, err := ParseTarget(c.URL)
	if err == nil && c.PasswordFile != "" {
		var b []byte
		if b, err = os.ReadFile(c.PasswordFile); err == nil {
			t.Password = strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		}
	}
	return t, err
}

// keyed is a subcommand about one lock.
type keyed struct {
	Key string `arg:"" help:"The lock."`
}

// Validate refuses the empty key, which no lock has: a variable of a script is not set.
func (k keyed) Validate() error {
	if k.Key == "" {
		return errors.New("the name of the lock is empty")
	}
	return nil
}

// program is the surroundings of a subcommand.
type program struct {
	ctx            context.Context
	name           string // of the subcommand
	stdout, stderr io.Writer
}

// tell writes a line for the user.
func (p *program) tell(format string, args ...any) {
	fmt.Fprintf(p.stderr, "lockproxy "+p.name+": "+format+"\n", args...)
}

// fail tells why a subcommand has failed.
func (p *program) fail(code int, format string, args ...any) int {
	p.tell(format, args...)
	return code
}

// Run executes a subcommand and returns the exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var grammar commands
	var help bytes.Buffer
	helped := false
	parser, err := kong.New(&grammar,
		KeepBytes(), kong.Name("lockproxy"), kong.Description("Locks of a running lockproxy."),
		kong.Writers(&help, io.Discard), kong.Exit(func(int) { helped = true }), kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		panic("BUG: grammar of the subcommands: " + err.Error())
	}
	parsed, err := parser.Parse(args)
	if helped {
		_, _ = io.Copy(stdout, &help)
		return ExitOK
	}
	if err != nil {
		fmt.Fprintln(stderr, "lockproxy:", err)
		return ExitUsage
	}
	p := &program{ctx: ctx, name: args[0], stdout: stdout, stderr: stderr}
	switch strings.Fields(parsed.Command())[0] {
	case "exec":
		return grammar.Exec.run(p)
	case "locks":
		return grammar.Locks.run(p)
	case "info":
		return grammar.Info.run(p)
	case "unlock":
		return grammar.Unlock.run(p)
	default:
		return grammar.ExecGuard.run(p)
	}
}

// askLimit bounds one question to the proxy.
const askLimit = 30 * time.Second

// ask connects, asks once and returns the exit code that answer gives.
func (p *program) ask(c connection, answer func(ctx context.Context, conn *Conn) (int, error)) int {
	t, err := c.target()
	if err != nil {
		return p.fail(ExitUsage, "%v", err)
	}
	ctx, cancel := context.WithTimeout(p.ctx, askLimit)
	defer cancel()
	conn, err := Dial(ctx, t, "lockproxy-"+p.name)
	if err != nil {
		return p.fail(ExitUnreachable, "%s", readable(err))
	}
	defer conn.Close()
	code, err := answer(ctx, conn)
	var reply Error
	switch {
	case errors.As(err, &reply):
		return p.fail(code, "the proxy answers: %s", readable(err))
	case err != nil:
		return p.fail(ExitUnreachable, "%s", readable(err))
	}
	return code
}

// Subcommand is what help texts, the man page and completions say of one subcommand.
type Subcommand struct {
	Name  string // exec
	Args  string // KEY -- COMMAND ...
	Help  string // one sentence, or several
	Flags []Flag
}

// Flag is an option of a subcommand.
type Flag struct {
	Name  string // with its dashes
	Help  string
	Value bool // a value follows
}

// Subcommands lists the subcommands for users, in the order of the grammar.
func Subcommands() []Subcommand {
	parser, err := kong.New(&commands{}, kong.Name("lockproxy"))
	if err != nil {
		panic("BUG: grammar of the subcommands: " + err.Error())
	}
	var all []Subcommand
	for _, node := range parser.Model.Children {
		if node.Hidden {
			continue
		}
		sub := Subcommand{Name: node.Name, Help: node.Help}
		var args []string
		for _, arg := range node.Positional {
			switch name := strings.ToUpper(arg.Name); {
			case arg.Passthrough || arg.IsCumulative():
				args = append(args, "--", name, "...")
			default:
				args = append(args, name)
			}
		}
		sub.Args = strings.Join(args, " ")
		for _, flag := range node.Flags {
			help, _, _ := strings.Cut(flag.Help, " ($")
			sub.Flags = append(sub.Flags, Flag{Name: "--" + flag.Name, Help: help, Value: !flag.IsBool()})
		}
		all = append(all, sub)
	}
	return all
}
