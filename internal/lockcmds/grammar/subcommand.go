package grammar

import "strings"

// Sub is the subcommand of a verb that has some.
type Sub uint8

// The subcommands of LOCKSLOW.
const (
	SlowGet Sub = iota + 1
	SlowLen
	SlowReset
	SlowHelp
)

// defaultSlowCount is the Count of LOCKSLOW GET without a number, as of SLOWLOG GET.
const defaultSlowCount = 10

// longestName is how much of an unknown name an error repeats, in bytes, as in Redis.
const longestName = 128

// lineBreaks become spaces in an error, as in Redis.
var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")

func errSubcommand(s *Spec, name []byte) error {
	text := lineBreaks.Replace(string(name[:min(len(name), longestName)]))
	return &ParseError{"ERR unknown subcommand '" + text + "'. Try " + strings.ToUpper(s.Name) + " HELP."}
}

// subcommand parses the arguments of a verb that has subcommands, the first of which is there. The errors are those of
// SLOWLOG.
func (s *Spec) subcommand(args [][]byte) (c Command, err error) {
	c = Command{Verb: s.Verb, Grace: unset, MaxHold: unset, Sync: unsetSync}
	var word string
	for _, one := range s.subs {
		if foldEqual(args[1], one.name) {
			word, c.Sub = one.name, one.sub
		}
	}
	switch {
	case c.Sub == 0:
		return Command{}, errSubcommand(s, args[1])
	case len(args) > 3, len(args) == 3 && c.Sub != SlowGet:
		return Command{}, errArity(s.Name + "|" + word)
	case c.Sub != SlowGet:
		return c, nil
	}
	n := int64(defaultSlowCount)
	if len(args) == 3 {
		if n, err = integer(args[2]); err != nil {
			return Command{}, err
		}
	}
	if n < -1 {
		return Command{}, errCount
	}
	c.Count = int(n)
	return c, nil
}
