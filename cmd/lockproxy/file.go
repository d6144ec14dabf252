package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/lockproxy/lockproxy/internal/cli"
)

// fileLimit is more than any configuration has. A larger file is one that was named by mistake, and takes minutes to
// parse.
const fileLimit = 1 << 20

// readFile returns the defaults with the file's settings on top. Unknown and repeated keys are errors with their place;
// no error quotes the file's lines, which may hold a password. A file without a text is an error: something has cut it
// off, perhaps, and the defaults are not meant.
func readFile(name string) (Config, error) {
	data, err := readLimited(name, fileLimit)
	switch {
	case err != nil:
		return Config{}, fmt.Errorf("read configuration: %w", err)
	case len(data) > fileLimit:
		return Config{}, errors.New(name + " is too large for a configuration")
	case !utf8.Valid(data): // the parser would put other characters in place of such bytes, in a password too
		return Config{}, errors.New(name + " is not UTF-8")
	}
	data = bytes.TrimPrefix(data, []byte("\uFEFF")) // some editors mark UTF-8 so
	if len(bytes.TrimSpace(data)) == 0 {
		return Config{}, errors.New(name + " is empty; a comment in it says that the defaults are meant")
	}
	cfg := NewConfig()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %s", name, syntaxError(err))
	}
	switch {
	case len(file.Docs) > 1:
		return Config{}, errors.New(name + ": more than one document")
	case len(file.Docs) == 0 || file.Docs[0].Body == nil: // only comments
		return cfg, nil
	}
	known := map[string]*setting{}
	for _, s := range settingsOf(&cfg) {
		known[s.key] = s
		if section, _, ok := strings.Cut(s.key, "."); ok {
			known[section] = nil
		}
	}
	if err := readSection("", file.Docs[0].Body, known); err != nil {
		return Config{}, errors.New(behind(name+": ", err))
	}
	return cfg, nil
}

// behind is an error with words in front of each of its lines.
func behind(words string, err error) string {
	return words + strings.ReplaceAll(err.Error(), "\n", "\n"+words)
}

// readSection sets the settings of a section, whose keys begin with prefix. known has all keys; that of a section has
// no setting.
func readSection(prefix string, section ast.Node, known map[string]*setting) error {
	pairs, ok := section.(ast.MapNode)
	if !ok && prefix == "upstream." { // the flag's name
		return mistake(section, "upstream is a section: write address: below upstream:")
	}
	if !ok {
		return mistake(section, "must be a section: its keys stand below it in lines of their own, further to the right")
	}
	var all []error
	for pair := pairs.MapRange(); pair.Next(); {
		name := pair.Key().GetToken().Value
		s, ok := known[prefix+name]
		_, empty := pair.Value().(*ast.NullNode)
		var err error
		switch of, rest, dotted := strings.Cut(name, "."); {
		case ok && dotted:
			err = mistake(pair.Key(), "unknown key '%s': write %s: below %s:", name, rest, of)
		case !ok:
			err = mistake(pair.Key(), "unknown key %s%s", prefix+name, cli.Meant(prefix+name, slices.Sorted(maps.Keys(known))))
		case empty: // the default
		case s == nil:
			err = readSection(name+".", pair.Value(), known)
		default:
			err = s.read(pair.Value())
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// read takes the value of a setting as it is written: a bare 007 is a name or a password, not the number 7. A single
// element of a list needs no brackets.
func (s *setting) read(node ast.Node) error {
	list, ok := reflect.TypeAssert[*List](s.field.Addr())
	if !ok {
		text, err := textOf(node)
		if err != nil {
			return err
		}
		if err := s.Set(text); err != nil {
			return mistake(node, "%s: %w", s.key, err)
		}
		return nil
	}
	elements := []ast.Node{node}
	if sequence, ok := node.(*ast.SequenceNode); ok {
		elements = sequence.Values
	}
	*list = make(List, len(elements))
	for i, element := range elements {
		var err error
		if (*list)[i], err = textOf(element); err != nil {
			return err
		}
	}
	return nil
}

// textOf is the text of a single value.
func textOf(node ast.Node) (string, error) {
	switch n := node.(type) {
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		return "", mistake(node, "a value that begins with *, & or ! stands in quotes")
	case *ast.LiteralNode: // a block, after | or >
		return n.Value.Value, nil
	case *ast.NullNode: // an element of a list without a value
	case ast.ScalarNode:
		return n.GetToken().Value, nil
	}
	return "", mistake(node, "must be a single value")
}

// mistake is an error about a place in the file.
func mistake(where ast.Node, format string, args ...any) error {
	at := where.GetToken().Position
	return fmt.Errorf("[%d:%d] %w", at.Line, at.Column, fmt.Errorf(format, args...))
}

// quoted matches what the parser quotes of a file.
var quoted = pattern(`"(\\.|[^"\\])*"`)

// syntaxError is what the parser says of a file, with the place, and without the values that it quotes: one may be a
// password.
func syntaxError(err error) string {
	at, text := "", err.Error()
	if known, ok := errors.AsType[yaml.Error](err); ok {
		place := known.GetToken().Position
		at, text = fmt.Sprintf("[%d:%d] ", place.Line, place.Column), known.GetMessage()
	}
	if !strings.HasPrefix(text, "mapping key ") { // it quotes a key
		text = quoted().ReplaceAllString(text, "this")
	}
	return at + text
}

// readSecrets reads the secrets for which the configuration names files. A secret in two places is an error, because
// the two may differ.
func (c *Config) readSecrets() error {
	var errs []error
	for _, s := range []struct {
		key    string
		secret *Secret
		file   string
	}{
		{"upstream.password", &c.Upstream.Password, c.Upstream.PasswordFile},
		{"sentinel.password", &c.Sentinel.Password, c.Sentinel.PasswordFile},
	} {
		if s.file == "" {
			continue
		}
		text, err := readSecret(s.file)
		if *s.secret != "" {
			err = errors.New("excludes " + s.key)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s-file: %w", s.key, err))
			continue
		}
		*s.secret = text
	}
	return errors.Join(errs...)
}

// secretLimit is more than any password has. A larger file is one that was named by mistake.
const secretLimit = 64 << 10

// readSecret returns the content of a file, without the one line end that editors append. No error contains any part of
// it.
func readSecret(name string) (Secret, error) {
	text, err := readLimited(name, secretLimit+2)
	if err != nil {
		return "", err
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	switch {
	case len(text) == 0:
		return "", fmt.Errorf("%s is empty", name)
	case len(text) > secretLimit:
		return "", errors.New(name + " is too large for a password")
	}
	return Secret(text), nil
}

// readLimited returns the content of a file, of which it reads one byte beyond the limit at most: a device may have no
// end.
func readLimited(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, limit+1))
}
