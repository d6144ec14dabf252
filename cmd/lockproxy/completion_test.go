package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/lockproxy/lockproxy/internal/cli"
)

// ownFlags are the flags that are no settings.
func ownFlags() *pflag.FlagSet {
	f := flagSet()
	new(command).flags(f)
	return f
}

// proxyFlags are all flags of the proxy itself.
func proxyFlags() *pflag.FlagSet {
	f := ownFlags()
	for _, s := range settingsOf(new(NewConfig())) {
		f.Var(s, s.flag(), "")
	}
	return f
}

// names are the names of flags, with --help.
func names(flags *pflag.FlagSet) string {
	all := "--help"
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" {
			all += " --" + flag.Name
		}
	})
	return all
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
