package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"lockproxy/cmd/lockproxy/values"
)

// envPrefix starts the name of every environment variable that is read. Variables with this prefix that no setting has
// are ignored, unlike unknown keys in the file: an orchestrator sets LOCKPROXY_PORT and the like by itself when a
// service is called lockproxy.
const envPrefix = "LOCKPROXY"

// command is one invocation of the program with its configuration.
type command struct {
	Config

	File    string `name:"config" placeholder:"FILE" help:"Configuration file (YAML)."`
	Check   bool   `env:"-" help:"Validate the configuration and exit: 0 valid, 2 not."`
	Health  bool   `env:"-" help:"PING the proxy that runs with this configuration and exit: 0 it answers, 1 not."`
	Version bool   `env:"-" help:"Print the version and exit."`
	Help    bool   `short:"h" help:"Show this help and exit."`

	help string // the text to print if Help
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
		cfg, err := readFile(cmd.File)
		if err != nil {
			return command{}, err
		}
		cmd = command{Config: cfg}
		if err := cmd.parse(args); err != nil {
			return command{}, err
		}
	}
	if err := cmd.readSecrets(); err != nil {
		return command{}, err
	}
	return cmd, cmd.Verify()
}

// parse applies environment and arguments to cmd. Kong resets every field to the default in its tag before it parses;
// so the present values (the defaults, or the file's) become kong's defaults first.
func (cmd *command) parse(args []string) error {
	var help bytes.Buffer
	parser, err := kong.New(cmd,
		kong.Name("lockproxy"),
		kong.Description("A server that speaks the Redis protocol in front of a Redis and adds lock commands. Subcommands ask a running one: lockproxy exec, locks, info, unlock (each has --help)."),
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
	if cmd.Help {
		if err := ctx.PrintUsage(false); err != nil {
			return fmt.Errorf("print usage: %w", err)
		}
		cmd.help = help.String()
	}
	return nil
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
	case values.Secret:
		return string(v), v != ""
	case []string:
		return kong.JoinEscaped(v, ','), len(v) > 0
	}
	return fmt.Sprint(field.Interface()), !field.IsZero()
}

// readFile returns the defaults with the file's settings on top. Unknown and repeated keys are errors with their line;
// no error quotes the file's lines, which may hold a password.
func readFile(name string) (Config, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	cfg := NewConfig()
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	err = dec.Decode(&cfg)
	if errors.Is(err, io.EOF) { // empty, or only comments; the decoder has cleared cfg
		return NewConfig(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("%s: %s", name, yaml.FormatError(err, false, false))
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: more than one document", name)
	}
	return cfg, nil
}
