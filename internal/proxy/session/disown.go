package session

import (
	"bytes"
	"slices"
)

// Disown takes all credentials out of the arguments of a HELLO, by Redis's own grammar: an argument of SETNAME is no
// option. The arguments behind an option that Redis does not accept are left out too, so that no unread argument
// travels; Redis refuses the command at that option. It reuses args.
func Disown(args [][]byte) [][]byte {
	out := args[:min(2, len(args))]
	for i := 2; i < len(args); i++ {
		switch option := bytes.ToLower(args[i]); {
		case slices.Equal(option, []byte("auth")) && i+2 < len(args):
			i += 2
		case slices.Equal(option, []byte("setname")) && i+1 < len(args):
			out = append(out, args[i], args[i+1])
			i++
		default:
			return append(out, args[i])
		}
	}
	return out
}
