package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/lockproxy/lockproxy/internal/cli"
)

// envPrefix starts the name of every environment variable that is read. Other variables with this prefix are errors, as
// unknown keys in the file are, except for those of serviceVariable and testVariable.
const envPrefix = "LOCKPROXY"

// command is one invocation of the program with its configuration.
type command struct {
	Config

	File    string `name:"config" placeholder:"FILE" help:"Configuration file (YAML)."`
	Check   bool   `env:"-" help:"Validate the configuration and exit: 0 valid, 2 not."`
	Connect bool   `env:"-" help:"With --check: also open the listeners and ask Redis whether it serves the proxy's user. It prints each right that is missing, and the warnings of a start. Exit code 1: it does not work. Not beside a proxy that runs."`
	Health  bool   `env:"-" help:"Ask the proxy that runs with this configuration whether it lives, whatever the state of Redis, and exit: 0 it answers, 1 not."`
	Ready   bool   `env:"-" help:"Ask the proxy that runs with this configuration whether it serves clients from Redis, and exit: 0 it does, 1 not."`
	Version bool   `env:"-" help:"Print the version and exit."`
	Help    bool   `short:"h" help:"Show this help and exit."`

	help  string // the text to print if Help
	blank bool   // File has no settings
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
		if cmd, err = readFile(cmd.File); err != nil {
			return command{}, err
		}
		if err := cmd.parse(args); err != nil {
			return command{}, err
		}
	}
	if err := cmd.readSecrets(); err != nil {
		return command{}, err
	}
	return cmd, cmd.Verify()
}

// description is the head of --help.
func description() string {
	var b strings.Builder
	b.WriteString("A Redis proxy that adds distributed locks. Without a subcommand it serves.\n\nSubcommands ask a running proxy; each has --help:\n\n")
	subcommands := cli.Subcommands()
	width := 0
	for _, sub := range subcommands {
		width = max(width, len(sub.Name+" "+sub.Args))
	}
	for _, sub := range subcommands {
		summary, _, _ := strings.Cut(sub.Help, ". ")
		fmt.Fprintf(&b, "  %-*s  %s\n", width, sub.Name+" "+sub.Args, strings.TrimSuffix(summary, "."))
	}
	b.WriteString("\nThe flags are those of the proxy.")
	return b.String()
}

// loader loads the configuration of these arguments again, after the first time. The function that it returns is called
// by one goroutine at a time. A file that has lost all its settings is an error: an editor has truncated it, perhaps.
// So is a pipe, which can be read once.
func loader(args []string, first command) func() (Config, error) {
	blank := first.blank
	return func() (Config, error) {
		if info, err := os.Stat(first.File); err == nil && info.Mode()&fs.ModeNamedPipe != 0 { // any other error is load's
			return Config{}, errors.New(first.File + " is a pipe, which can be read once")
		}
		again, err := load(args)
		if err != nil {
			return Config{}, err
		}
		if again.blank && !blank {
			return Config{}, errors.New(first.File + " has no settings any more; a restart would take the defaults")
		}
		blank = again.blank
		return again.Config, nil
	}
}

// parse applies environment and arguments to cmd. Kong resets every field to the default in its tag before it parses;
// so the present values (the defaults, or the file's) become kong's defaults first.
func (cmd *command) parse(args []string) error {
	var help bytes.Buffer
	parser, err := kong.New(cmd,
		cli.KeepBytes(),
		kong.Name("lockproxy"),
		kong.NoDefaultHelp(),
		kong.DefaultEnvars(envPrefix),
		kong.Writers(&help, io.Discard),
		kong.Exit(func(int) {}),
		kong.PostBuild(func(k *kong.Kong) error {
			for _, flag := range k.Model.Flags {
				text, ok := formatDefault(flag.Target)
				flag.Default, flag.HasDefault = strings.ReplaceAll(text, "$", "$$"), ok // kong expands ${name}
			}
			return nil
		}),
	)
	if err != nil {
		return fmt.Errorf("BUG: command line grammar: %w", err)
	}
	ctx, err := parser.Parse(args)
	if err != nil {
		return err
	}
	if err := unknownVariables(parser.Model.Flags, os.Environ()); err != nil {
		return err
	}
	if cmd.Help {
		parser.Model.Help = description()
		if err := ctx.PrintUsage(false); err != nil {
			return fmt.Errorf("print usage: %w", err)
		}
		cmd.help = help.String()
	}
	return nil
}

// serviceVariable matches the variables that Kubernetes sets by itself for each service whose name is lockproxy, or
// begins with lockproxy-. No setting has a name of this form.
var serviceVariable = regexp.MustCompile(
	`^LOCKPROXY(_[A-Z0-9_]+)?_(SERVICE_HOST=|SERVICE_PORT(_[A-Z0-9_]+)?=|PORT=\w+://|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?=)`)

// testVariable matches the variables of the subcommands, and those that steer this project's own tests. The proxies
// that these start inherit them.
var testVariable = regexp.MustCompile(`^LOCKPROXY_(BINARY|URL|URL_PASSWORD_FILE|SEED|CHAOS_TIME|SOAK_TIME|REDIS_SERVER|REQUIRE_REDIS|REQUIRE_INTEROP|INTEROP_[A-Z]+|TEST_[A-Z_]+)$`)

// unknownVariables reports variables of the environment that look like settings and are none. It does not print their
// values.
func unknownVariables(flags []*kong.Flag, environ []string) error {
	var errs []error
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix+"_") || serviceVariable.MatchString(entry) ||
			testVariable.MatchString(name) || slices.ContainsFunc(flags, func(f *kong.Flag) bool { return slices.Contains(f.Envs, name) }) {
			continue
		}
		errs = append(errs, fmt.Errorf("unknown variable %s in the environment", name))
	}
	return errors.Join(errs...)
}

// formatDefault writes a field's value the way kong reads it; ok is false where there is none.
func formatDefault(field reflect.Value) (text string, ok bool) {
	if field.Kind() == reflect.Pointer {
		if field.IsNil() {
			return "", false
		}
		field = field.Elem()
	}
	switch v := field.Interface().(type) {
	case Secret:
		return string(v), v != ""
	case []string:
		return kong.JoinEscaped(v, ','), len(v) > 0
	}
	return fmt.Sprint(field.Interface()), !field.IsZero()
}

// fileLimit is more than any configuration has. A larger file is one that was named by mistake, and takes minutes to
// parse.
const fileLimit = 1 << 20

// readFile returns the defaults with the file's settings on top. Unknown and repeated keys are errors with their line;
// no error quotes the file's lines, which may hold a password.
func readFile(name string) (command, error) {
	data, err := readLimited(name, fileLimit)
	switch {
	case err != nil:
		return command{}, fmt.Errorf("read configuration: %w", err)
	case len(data) > fileLimit:
		return command{}, errors.New(name + " is too large for a configuration")
	case !utf8.Valid(data): // the decoder would put other characters in place of such bytes, in a password too
		return command{}, errors.New(name + " is not UTF-8")
	}
	cfg := NewConfig()
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	err = dec.Decode(&cfg)
	if errors.Is(err, io.EOF) { // empty, or only comments; the decoder has cleared cfg
		return command{Config: NewConfig(), blank: true}, nil
	}
	if err != nil {
		if bad := badDuration(data); bad != "" {
			return command{}, fmt.Errorf("%s: %s", name, bad)
		}
		return command{}, fmt.Errorf("%s: %s", name, plain(err))
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return command{}, fmt.Errorf("%s: more than one document", name)
	}
	return command{Config: cfg}, nil
}

// plain is what the decoder says of a file, with the line and the column. The decoder would name a wrong type in Go's
// words.
func plain(err error) string {
	typeError, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return yaml.FormatError(err, false, false)
	}
	at, wanted := typeError.Token.Position, "another kind of value"
	switch typeError.DstType {
	case reflect.TypeFor[time.Duration]():
		wanted = "a duration with a unit, as in 250ms or 1h30m"
	case reflect.TypeFor[bool]():
		wanted = "true or false"
	}
	return fmt.Sprintf("[%d:%d] must be %s", at.Line, at.Column, wanted)
}

// badDuration describes the first text in a file that is no duration where one belongs; empty: there is none. The
// decoder would name neither its key nor its line.
func badDuration(data []byte) string {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return ""
	}
	var search func(prefix string, t reflect.Type) string
	search = func(prefix string, t reflect.Type) string {
		for field := range t.Fields() {
			key := prefix + field.Tag.Get("yaml")
			switch {
			case field.Type.Kind() == reflect.Struct:
				if bad := search(key+".", field.Type); bad != "" {
					return bad
				}
			case field.Type == reflect.TypeFor[time.Duration](), field.Type == reflect.TypeFor[*time.Duration]():
				if bad := badText(file, key); bad != "" {
					return bad
				}
			}
		}
		return ""
	}
	return search("", reflect.TypeFor[Config]())
}

func badText(file *ast.File, key string) string {
	path, err := yaml.PathString("$.'" + strings.ReplaceAll(key, ".", "'.'") + "'")
	if err != nil {
		panic("BUG: the key of a setting is no path: " + err.Error())
	}
	node, err := path.FilterFile(file)
	if err != nil { // it is not in the file
		return ""
	}
	text, ok := node.(*ast.StringNode)
	if !ok {
		return ""
	}
	if _, err := time.ParseDuration(text.Value); err == nil {
		return ""
	}
	at := text.Token.Position
	return fmt.Sprintf("[%d:%d] %s: %q is not a duration with a unit, as in 250ms or 1h30m", at.Line, at.Column, key, text.Value)
}
