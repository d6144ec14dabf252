package main

import (
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/cli"
)

// proxyFlags are all flags of the proxy itself.
func proxyFlags() []cli.Flag {
	flags := ownFlags()
	for _, s := range settingsOf(new(NewConfig())) {
		flags = append(flags, cli.Flag{Name: "--" + s.flag(), Help: s.tag.Get("help"), Value: s.field.Kind() != reflect.Bool})
	}
	return flags
}

// names are the names of flags, with --help.
func names(flags []cli.Flag) string {
	all := []string{"--help"}
	for _, flag := range flags {
		if flag.Name != "--help" {
			all = append(all, flag.Name)
		}
	}
	return strings.Join(all, " ")
}

// summary is the first sentence of a help text, short enough for a list.
func summary(help string) string {
	text, _, _ := strings.Cut(help, ". ")
	return strings.TrimSuffix(text, ".")
}

func subcommandNames() []string {
	var all []string
	for _, sub := range cli.Subcommands() {
		all = append(all, sub.Name)
	}
	return append(all, "help")
}

const writtenBy = "written by go test ./cmd/lockproxy -run Packaging -update"

func bashCompletion() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# bash completion for lockproxy, %s
_lockproxy() {
	local word=${COMP_WORDS[COMP_CWORD]} words='%s'
	case ${COMP_WORDS[1]} in
`, writtenBy, names(proxyFlags()))
	for _, sub := range cli.Subcommands() {
		fmt.Fprintf(&b, "\t%s) words='%s' ;;\n", sub.Name, names(sub.Flags))
	}
	commands := strings.Join(subcommandNames(), " ")
	fmt.Fprintf(&b, `	help) words='%s' ;;
	*) [ "$COMP_CWORD" -eq 1 ] && words="%s $words" ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _lockproxy lockproxy
`, strings.TrimSuffix(commands, " help"), commands)
	return b.String()
}

func zshCompletion() string {
	var b strings.Builder
	quote := strings.NewReplacer(`'`, `'\''`, `[`, `\[`, `]`, `\]`, `:`, `\:`)
	arguments := func(flags []cli.Flag) {
		for _, flag := range flags {
			spec := flag.Name + "[" + quote.Replace(summary(flag.Help)) + "]"
			if flag.Value {
				spec = flag.Name + "=[" + quote.Replace(summary(flag.Help)) + "]:value:_files"
			}
			fmt.Fprintf(&b, "\t\t'%s' \\\n", spec)
		}
	}
	fmt.Fprintf(&b, "#compdef lockproxy\n# zsh completion for lockproxy, %s\n_lockproxy() {\n\tcase $words[2] in\n", writtenBy)
	for _, sub := range cli.Subcommands() {
		fmt.Fprintf(&b, "\t%s)\n\t\t_arguments \\\n", sub.Name)
		arguments(sub.Flags)
		b.WriteString("\t\t'*::argument:_default'\n\t\t;;\n")
	}
	b.WriteString("\t*)\n\t\t_arguments \\\n")
	arguments(proxyFlags())
	fmt.Fprintf(&b, "\t\t'1:subcommand:(%s)'\n\t\t;;\n\tesac\n}\n_lockproxy \"$@\"\n", strings.Join(subcommandNames(), " "))
	return b.String()
}

func fishCompletion() string {
	var b strings.Builder
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	arguments := func(condition string, flags []cli.Flag) {
		for _, flag := range flags {
			value := ""
			if flag.Value {
				value = " -r"
			}
			fmt.Fprintf(&b, "complete -c lockproxy -n '%s' -l %s%s -d '%s'\n", condition, strings.TrimPrefix(flag.Name, "--"), value, quote.Replace(summary(flag.Help)))
		}
	}
	fmt.Fprintf(&b, "# fish completion for lockproxy, %s\n", writtenBy)
	for _, sub := range cli.Subcommands() {
		fmt.Fprintf(&b, "complete -c lockproxy -n __fish_use_subcommand -a %s -d '%s'\n", sub.Name, quote.Replace(summary(sub.Help)))
		arguments("__fish_seen_subcommand_from "+sub.Name, sub.Flags)
	}
	b.WriteString("complete -c lockproxy -n __fish_use_subcommand -a help -d 'Show the flags of the proxy or of a subcommand'\n")
	arguments("not __fish_seen_subcommand_from "+strings.Join(subcommandNames(), " "), proxyFlags())
	return b.String()
}

// The completions are scripts: each shell that is here must be able to read its own.
func TestCompletionsCanBeRead(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("no %s here", shell)
			continue
		}
		if out, err := exec.Command(shell, "-n", "../../packaging/lockproxy."+shell).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
	}
}

func TestBashCompletes(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here")
	}
	complete := func(words ...string) []string {
		t.Helper()
		script := fmt.Sprintf(`source ../../packaging/lockproxy.bash; COMP_WORDS=(lockproxy %s); COMP_CWORD=%d; _lockproxy; echo "${COMPREPLY[@]}"`,
			strings.Join(words, " "), len(words))
		out, err := exec.Command("bash", "-c", script).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	for _, test := range []struct {
		words []string
		want  []string
	}{
		{[]string{"ex"}, []string{"exec"}},
		{[]string{"--lock-re"}, []string{"--lock-reentry"}},
		{[]string{"unlock", "--ow"}, []string{"--owner"}},
		{[]string{"help", "lo"}, []string{"locks"}},
	} {
		if got := complete(test.words...); !slices.Equal(got, test.want) {
			t.Errorf("%q completes to %q, want %q", test.words, got, test.want)
		}
	}
}
