// Package cli is the subcommands of the program, which ask a running proxy: exec, locks, info, unlock.
//
//	Run ─┬─► exec ──► holder (the lock at the proxy) + renewal (what to do when) + process (the command)
//	     ├─► exec-guard, which exec starts for the case of its own death
//	     └─► locks, info, unlock: one question, one answer
//
// Goroutines: exec has one for each extension of its lease, and while it waits for the lock one for the wait and one that
// asks whether the proxy lives. It waits for all of them. What a subcommand has to say is written by package logging.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/lockproxy/lockproxy/internal/logging"
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

// command is the flags and arguments of one invocation of a subcommand.
type command interface {
	// flags declares its flags.
	flags(f *pflag.FlagSet)

	// arguments takes the arguments that f has not parsed.
	arguments(f *pflag.FlagSet) error

	// run executes it and returns the exit code.
	run(p *program) int
}

// subcommand is a row in the grammar of the program.
type subcommand struct {
	name, args string
	help       string // one sentence, or several
	details    string // behind the flags in its --help
	begin      func() command
	hidden     bool
}

// subcommands is the grammar.
var subcommands = []subcommand{
	{
		name: "exec", args: "KEY -- COMMAND ...", help: "Hold a lock while a command runs.", details: execDetails,
		begin: func() command { return &execCommand{} },
	},
	{
		name: "locks", help: "List the locks that are held through the proxy.",
		begin: func() command { return &locksCommand{} },
	},
	{
		name: "info", args: "KEY", help: "Show the holder of a lock. Exit code 1: it is free.",
		begin: func() command { return &infoCommand{} },
	},
	{
		name: "unlock", args: "KEY",
		help:  "Remove a lock of any holder, or with --owner or --fence one grant. Exit code 1: there was none.",
		begin: func() command { return &unlockCommand{} },
	},
	{name: guardName, begin: func() command { return &guardCommand{} }, hidden: true},
}

// find returns the subcommand of that name; nil: there is none.
func find(name string) *subcommand {
	for i := range subcommands {
		if subcommands[i].name == name {
			return &subcommands[i]
		}
	}
	return nil
}

// Is reports whether the arguments of the program begin with a subcommand.
func Is(args []string) bool { return len(args) > 0 && find(args[0]) != nil }

// connection is how the proxy is reached.
type connection struct{ URL, PasswordFile string }

const defaultURL = "redis://127.0.0.1:7379"

func (c *connection) flags(f *pflag.FlagSet) {
	f.StringVarP(&c.URL, "url", "u", "",
		"The proxy: redis://user:password@host:port/db, rediss:// for TLS, unix:///path. "+
			"Unset: LOCKPROXY_URL, or "+defaultURL+".")
	f.StringVar(&c.PasswordFile, "password-file", "",
		"`FILE` that holds the password, if it is not in the URL. Unset: LOCKPROXY_URL_PASSWORD_FILE.")
}

// target reads the address.
func (c connection) target() (Target, error) {
	t, err := parseTarget(c.URL)
	if err == nil && c.PasswordFile != "" {
		var b []byte
		if b, err = os.ReadFile(c.PasswordFile); err == nil {
			t.Password = strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		}
	}
	return t, err
}

// complete puts the variables in the place of flags that were not given.
func (c *connection) complete() {
	c.URL = cmp.Or(c.URL, os.Getenv("LOCKPROXY_URL"), defaultURL)
	c.PasswordFile = cmp.Or(c.PasswordFile, os.Getenv("LOCKPROXY_URL_PASSWORD_FILE"))
}

// errNoName is about the empty key, which no lock has: a variable of a script is not set.
var errNoName = errors.New("the name of the lock is empty")

// program is the surroundings of a subcommand.
type program struct {
	ctx    context.Context
	name   string // of the subcommand
	stdout io.Writer
	stderr *logging.Output
}

// tell writes a line for the user.
func (p *program) tell(format string, args ...any) {
	p.say(fmt.Sprintf("lockproxy "+p.name+": "+format+"\n", args...))
}

// say writes lines for the user. The reader of standard error may stand still, such as a stopped terminal or a full
// pipe: the work is not held up.
func (p *program) say(lines string) { _, _ = p.stderr.Of(logging.Ordinary).Write([]byte(lines)) }

// end waits until the user has the lines, for a second at most. It is the end of the program.
func (p *program) end() { p.stderr.Close(time.Second) }

// fail tells why a subcommand has failed.
func (p *program) fail(code int, format string, args ...any) int {
	p.tell(format, args...)
	return code
}

// Run executes a subcommand and returns the exit code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	sub := find(args[0])
	cmd := sub.begin()
	f := sub.flagSet(cmd)
	err := f.Parse(args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		sub.printHelp(stdout, f)
		return ExitOK
	}
	if err == nil {
		err = cmd.arguments(f)
	}
	p := &program{ctx: ctx, name: sub.name, stdout: stdout}
	p.stderr = logging.NewOutput(stderr, func(logging.Dropped) []byte { return []byte("lockproxy: messages are missing\n") })
	defer p.end()
	if err != nil {
		p.tell("%s", readable(FlagError(err, f)))
		p.say(fmt.Sprintf("Usage: %s; --help has the flags\n", sub.usage()))
		return ExitUsage
	}
	return cmd.run(p)
}

func (s *subcommand) flagSet(cmd command) *pflag.FlagSet {
	f := pflag.NewFlagSet(s.name, pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {}
	cmd.flags(f)
	return f
}

// helpWidth is the columns of a help text.
const helpWidth = 100

// usage is the form of an invocation.
func (s *subcommand) usage() string {
	return strings.TrimSpace("lockproxy " + s.name + " [flags] " + s.args)
}

func (s *subcommand) printHelp(w io.Writer, f *pflag.FlagSet) {
	fmt.Fprintf(w, "Usage: %s\n\n%s\n\nFlags:\n%s", s.usage(), s.help, f.FlagUsagesWrapped(helpWidth))
	if s.details != "" {
		fmt.Fprintf(w, "\n%s\n", s.details)
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
		return p.fail(ExitUnreachable, "%s", readable(why(ctx, t, err)))
	}
	defer conn.Close()
	code, err := answer(ctx, conn)
	var reply Error
	switch {
	case errors.As(err, &reply):
		return p.fail(code, "%s", readable(answered(err)))
	case err != nil:
		return p.fail(ExitUnreachable, "%s", readable(why(ctx, t, err)))
	}
	return code
}

// answered is an error reply of the proxy, in words for a user.
func answered(err error) error {
	if strings.HasPrefix(err.Error(), "ERR unknown command") {
		return fmt.Errorf("the proxy answers: %w (is it Redis itself?)", err)
	}
	return fmt.Errorf("the proxy answers: %w", err)
}

// Subcommand is what help texts, the man page and completions say of one subcommand.
type Subcommand struct {
	Name  string // exec
	Args  string // KEY -- COMMAND ...
	Help  string // one sentence, or several
	Flags *pflag.FlagSet
}

// Subcommands lists the subcommands for users, in the order of the grammar.
func Subcommands() []Subcommand {
	var all []Subcommand
	for i := range subcommands {
		if s := &subcommands[i]; !s.hidden {
			all = append(all, Subcommand{Name: s.name, Args: s.args, Help: s.help, Flags: s.flagSet(s.begin())})
		}
	}
	return all
}
