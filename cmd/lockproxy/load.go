package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/lockproxy/lockproxy/internal/cli"
)

// envPrefix starts the name of every environment variable that is read. Other variables with this prefix are errors, as
// unknown keys in the file are, except for those of serviceVariable and testVariable.
const envPrefix = "LOCKPROXY"

// command is one invocation of the program with its configuration.
type command struct {
	Config

	File string // of the configuration; empty: none

	Check, Connect, Health, Ready, Version, Help, HelpAll bool

	help string // the text to print if Help or HelpAll
}

// flags declares the flags that are no settings.
func (cmd *command) flags(f *pflag.FlagSet) {
	f.StringVar(&cmd.File, "config", cmd.File, "Configuration `FILE` (YAML).")
	f.BoolVar(&cmd.Check, "check", false, "Validate the configuration and exit: 0 valid, 2 not.")
	f.BoolVar(&cmd.Connect, "connect", false,
		"With --check: also open the listeners and ask Redis whether it serves the proxy's user. "+
			"It prints each right that is missing, and the warnings of a start. "+
			"Exit code 1: it does not work. Not beside a proxy that runs.")
	f.BoolVar(&cmd.Health, "health", false,
		"Ask the proxy that runs with this configuration whether it lives, whatever the state of Redis, "+
			"and exit: 0 it answers, 1 not.")
	f.BoolVar(&cmd.Ready, "ready", false,
		"Ask the proxy that runs with this configuration whether it serves clients from Redis, "+
			"and exit: 0 it does, 1 not.")
	f.BoolVar(&cmd.Version, "version", false, "Print the version and exit.")
	f.BoolVarP(&cmd.Help, "help", "h", false, "Show the usual flags and exit.")
	f.BoolVar(&cmd.HelpAll, "help-all", false, "Show all flags and exit.")
}

// load reads the configuration. A flag wins over an environment variable, that over the file, that over the default.
//
// The arguments are parsed twice: once for the file's name, and once more on top of the file's settings.
func load(args []string) (command, error) {
	cmd := command{Config: NewConfig()}
	if err := cmd.parse(args); err != nil || cmd.help != "" || cmd.Version {
		return cmd, err
	}
	if cmd.File != "" {
		var err error
		if cmd.Config, err = readFile(cmd.File); err != nil {
			return command{}, err
		}
		if err := cmd.parse(args); err != nil {
			return command{}, err
		}
	}
	return cmd, errors.Join(cmd.readSecrets(), cmd.Verify())
}

// description is the head of --help.
func description() string {
	var b strings.Builder
	b.WriteString("Usage: lockproxy [flags]\n\n" +
		"A Redis proxy that adds distributed locks. Without a subcommand it serves.\n\n" +
		"Subcommands ask a running proxy; each has --help:\n\n")
	subcommands := cli.Subcommands()
	width := 0
	for _, sub := range subcommands {
		width = max(width, len(sub.Name+" "+sub.Args))
	}
	for _, sub := range subcommands {
		summary, _, _ := strings.Cut(sub.Help, ". ")
		fmt.Fprintf(&b, "  %-*s  %s\n", width, sub.Name+" "+sub.Args, strings.TrimSuffix(summary, "."))
	}
	b.WriteString("\nFlags of the proxy. Each setting is also a variable, LOCKPROXY_LOCK_LEASE for --lock-lease, " +
		"and a key of the file, lock.lease:\n\n")
	return b.String()
}

// parse applies environment and arguments to cmd.
func (cmd *command) parse(args []string) error {
	all, usual := flagSet(), flagSet()
	cmd.flags(all)
	all.VisitAll(usual.AddFlag)
	settings := settingsOf(&cmd.Config)
	for _, s := range settings {
		flag := all.VarPF(s, s.flag(), "", s.tag.Get("help"))
		if s.field.Kind() == reflect.Bool {
			flag.NoOptDefVal = "true"
		}
		if s.tag.Get("usual") != "" {
			usual.AddFlag(flag)
		}
	}
	if err := readVariables(settings, os.Environ()); err != nil {
		return err
	}
	if file, ok := os.LookupEnv(envPrefix + "_CONFIG"); ok {
		cmd.File = file
	}
	if err := all.Parse(args); err != nil {
		return cli.FlagError(err, all)
	}
	if all.NArg() > 0 {
		return unexpected(all.Arg(0), args)
	}
	switch {
	case cmd.HelpAll:
		cmd.help = description() + all.FlagUsagesWrapped(helpWidth)
	case cmd.Help:
		cmd.help = description() + usual.FlagUsagesWrapped(helpWidth) + "\n--help-all shows all flags.\n"
	}
	return nil
}

// unexpected is the error about an argument that is none of a flag.
func unexpected(arg string, args []string) error {
	if arg == args[0] {
		names := []string{"--version", "--help", "--check"}
		for _, sub := range cli.Subcommands() {
			names = append(names, sub.Name)
		}
		return fmt.Errorf("unexpected argument %s: it is no subcommand%s (without one lockproxy serves; --help has all)",
			arg, cli.Meant(arg, names))
	}
	return fmt.Errorf("unexpected argument %s", arg)
}

// helpWidth is the columns of a help text.
const helpWidth = 100

func flagSet() *pflag.FlagSet {
	f := pflag.NewFlagSet("lockproxy", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() {}
	return f
}

// readVariables takes the settings from the environment. A variable that looks like a setting and is none is an error.
// Errors do not have the values.
func readVariables(settings []*setting, environ []string) error {
	known := map[string]*setting{}
	for _, s := range settings {
		known[s.variable()] = s
	}
	var errs []error
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		s := known[name]
		switch {
		case s != nil:
			if err := s.Set(value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
			s.given = false // a flag does not continue the list
		case !strings.HasPrefix(name, envPrefix+"_"), name == envPrefix+"_CONFIG":
		case serviceVariable().MatchString(entry), testVariable().MatchString(name):
		default:
			names := slices.Sorted(maps.Keys(known))
			errs = append(errs, fmt.Errorf("unknown variable %s in the environment%s", name, cli.Meant(name, names)))
		}
	}
	return errors.Join(errs...)
}

// pattern is a regular expression that is compiled at its first use: each start of a subcommand would pay for it.
func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// serviceVariable matches the variables that Kubernetes sets by itself for each service whose name is lockproxy, or
// begins with lockproxy-. No setting has a name of this form.
var serviceVariable = pattern(
	`^LOCKPROXY(_[A-Z0-9_]+)?_` +
		`(SERVICE_HOST=|SERVICE_PORT(_[A-Z0-9_]+)?=|PORT=\w+://|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?=)`)

// testVariable matches the variables of the subcommands, and those that steer this project's own tests. The proxies
// that these start inherit them.
var testVariable = pattern(
	`^LOCKPROXY_(BINARY|URL|URL_PASSWORD_FILE|SEED|CHAOS_TIME|SOAK_TIME` +
		`|REDIS_SERVER|REQUIRE_REDIS|REQUIRE_INTEROP|INTEROP_[A-Z]+|TEST_[A-Z_]+)$`)
