package cli

import (
	"strings"

	"github.com/alecthomas/kong"
)

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
