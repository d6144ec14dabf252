package command

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// appendEntry appends the entry of a lock command in the shape of COMMAND INFO of Redis 7.
func appendEntry(dst []byte, s *grammar.Spec, proto int) []byte {
	dst = resp.AppendHeader(dst, '*', 10)
	dst = resp.AppendBulk(dst, s.Name)
	dst = resp.AppendInteger(dst, s.Arity())
	dst = appendWords(dst, proto, "", s.Flags)
	position := 0
	if s.Access != nil {
		position = 1
	}
	for range 3 { // first key, last key, step
		dst = resp.AppendInteger(dst, position)
	}
	dst = appendWords(dst, proto, "@", s.Categories)
	dst = resp.AppendSetHeader(dst, proto, len(s.Tips))
	for _, tip := range s.Tips {
		dst = resp.AppendBulk(dst, tip)
	}
	dst = appendKeySpecs(dst, s, proto)
	return resp.AppendSetHeader(dst, proto, 0) // subcommands
}

// appendKeySpecs says that the first argument is the key, the only one.
func appendKeySpecs(dst []byte, s *grammar.Spec, proto int) []byte {
	if s.Access == nil {
		return resp.AppendSetHeader(dst, proto, 0)
	}
	dst = resp.AppendSetHeader(dst, proto, 1)
	dst = resp.AppendMapHeader(dst, proto, 3)
	dst = appendWords(resp.AppendBulk(dst, "flags"), proto, "", s.Access)
	dst = resp.AppendMapHeader(resp.AppendBulk(dst, "begin_search"), proto, 2)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "type"), "index")
	dst = resp.AppendMapHeader(resp.AppendBulk(dst, "spec"), proto, 1)
	dst = resp.AppendInteger(resp.AppendBulk(dst, "index"), 1)
	dst = resp.AppendMapHeader(resp.AppendBulk(dst, "find_keys"), proto, 2)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "type"), "range")
	dst = resp.AppendMapHeader(resp.AppendBulk(dst, "spec"), proto, 3)
	dst = resp.AppendInteger(resp.AppendBulk(dst, "lastkey"), 0)
	dst = resp.AppendInteger(resp.AppendBulk(dst, "keystep"), 1)
	return resp.AppendInteger(resp.AppendBulk(dst, "limit"), 0)
}

// appendDocs appends the name and its description in the shape of COMMAND DOCS.
func appendDocs(dst []byte, s *grammar.Spec, proto int) []byte {
	dst = resp.AppendBulk(dst, s.Name)
	dst = resp.AppendMapHeader(dst, proto, 5)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "summary"), s.Summary)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "since"), grammar.Since)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "group"), grammar.Group)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "complexity"), s.Complexity)
	return appendArguments(resp.AppendBulk(dst, "arguments"), proto, s.Arguments)
}

func appendArguments(dst []byte, proto int, args []grammar.Argument) []byte {
	dst = resp.AppendHeader(dst, '*', len(args))
	for _, a := range args {
		dst = appendArgument(dst, a, proto)
	}
	return dst
}

func appendArgument(dst []byte, a grammar.Argument, proto int) []byte {
	n := 2
	for _, there := range []bool{a.Type == "key", a.Token != "", a.Optional, a.OneOf != nil} {
		if there {
			n++
		}
	}
	dst = resp.AppendMapHeader(dst, proto, n)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "name"), a.Name)
	dst = resp.AppendBulk(resp.AppendBulk(dst, "type"), a.Type)
	if a.Type == "key" {
		dst = resp.AppendInteger(resp.AppendBulk(dst, "key_spec_index"), 0)
	}
	if a.Token != "" {
		dst = resp.AppendBulk(resp.AppendBulk(dst, "token"), a.Token)
	}
	if a.Optional {
		dst = appendWords(resp.AppendBulk(dst, "flags"), proto, "", []string{"optional"})
	}
	if a.OneOf != nil {
		dst = appendArguments(resp.AppendBulk(dst, "arguments"), proto, a.OneOf)
	}
	return dst
}

// appendWords appends a set of simple strings, each with the prefix.
func appendWords(dst []byte, proto int, prefix string, words []string) []byte {
	dst = resp.AppendSetHeader(dst, proto, len(words))
	for _, w := range words {
		dst = append(append(append(append(dst, '+'), prefix...), w...), '\r', '\n')
	}
	return dst
}
