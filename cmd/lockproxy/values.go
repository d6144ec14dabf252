package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// Size is a number of bytes, written as in redis.conf: 1k is 1000, 1kb is 1024, likewise m, mb, g, gb; no unit is
// bytes.
type Size int64

// The units of a size that redis.conf calls kb, mb and gb.
const (
	Kibibyte Size = 1 << 10
	Mebibyte Size = 1 << 20
	Gibibyte Size = 1 << 30
)

// sizeUnits is ordered so that no unit hides a longer one that ends like it.
var sizeUnits = []struct {
	suffix string
	bytes  Size
}{
	{"kb", Kibibyte},
	{"mb", Mebibyte},
	{"gb", Gibibyte},
	{"b", 1},
	{"k", 1e3},
	{"m", 1e6},
	{"g", 1e9},
	{"", 1},
}

// UnmarshalText parses a size; negative and overflowing ones are errors.
func (s *Size) UnmarshalText(text []byte) error {
	lower := strings.ToLower(string(text))
	for _, unit := range sizeUnits {
		digits, ok := strings.CutSuffix(lower, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n > math.MaxInt64/uint64(unit.bytes) {
			break
		}
		*s = Size(n) * unit.bytes
		return nil
	}
	return fmt.Errorf("%q is not a size like 64mb", text)
}

// String prints the size in the largest unit that divides it.
func (s Size) String() string {
	switch {
	case s > 0 && s%Gibibyte == 0:
		return fmt.Sprintf("%dgb", s/Gibibyte)
	case s > 0 && s%Mebibyte == 0:
		return fmt.Sprintf("%dmb", s/Mebibyte)
	case s > 0 && s%Kibibyte == 0:
		return fmt.Sprintf("%dkb", s/Kibibyte)
	}
	return strconv.FormatInt(int64(s), 10)
}

// orNone is the size as a limit of which 0 means that there is none.
func (s Size) orNone() int {
	if s == 0 {
		return math.MaxInt
	}
	return int(s)
}

// UnmarshalYAML says where in the file a size is wrong.
func (s *Size) UnmarshalYAML(node ast.Node) error { return unmarshalScalar(node, s.UnmarshalText) }

// unmarshalScalar reads the text of a single value as it is written: what looks like a number of some kind is not
// turned into one first. A key without a value keeps its default.
func unmarshalScalar(node ast.Node, read func(text []byte) error) error {
	at := node.GetToken().Position
	switch scalar := node.(type) {
	case *ast.NullNode:
		return nil
	case ast.ScalarNode:
		if err := read([]byte(scalar.GetToken().Value)); err != nil {
			return fmt.Errorf("[%d:%d] %w", at.Line, at.Column, err)
		}
		return nil
	}
	return fmt.Errorf("[%d:%d] a single value is expected", at.Line, at.Column)
}

// List is texts. A file may have a single one without brackets.
type List []string

// UnmarshalYAML reads the elements as they are written.
func (l *List) UnmarshalYAML(node ast.Node) error {
	elements := []ast.Node{node}
	switch n := node.(type) {
	case *ast.NullNode:
		return nil
	case *ast.SequenceNode:
		elements = n.Values
	}
	*l = make(List, len(elements))
	for i, element := range elements {
		var text Text
		if err := text.UnmarshalYAML(element); err != nil {
			return err
		}
		(*l)[i] = string(text)
	}
	return nil
}

// Count is a whole number, written in decimal digits and nothing else.
type Count int

// UnmarshalText parses a count; fractions, exponents and overflowing ones are errors. Negative ones are for Verify to
// name.
func (c *Count) UnmarshalText(text []byte) error {
	digits := strings.TrimPrefix(string(text), "-")
	n, err := strconv.ParseInt(string(text), 10, strconv.IntSize)
	if err != nil || strings.HasPrefix(digits, "+") || len(digits) > 1 && digits[0] == '0' {
		return fmt.Errorf("%q is not a whole number like 1000", text)
	}
	*c = Count(n)
	return nil
}

// UnmarshalYAML reads 1.5, 1e3, 0x10 or 010 as they are written, and so refuses them.
func (c *Count) UnmarshalYAML(node ast.Node) error { return unmarshalScalar(node, c.UnmarshalText) }

// Replicas is a number of replicas, or AllReplicas.
type Replicas int

// AllReplicas is written "all".
const AllReplicas Replicas = -1

// UnmarshalText parses a number of replicas.
func (r *Replicas) UnmarshalText(text []byte) error {
	if string(text) == "all" {
		*r = AllReplicas
		return nil
	}
	var c Count
	if err := c.UnmarshalText(text); err != nil || c < 0 || c > math.MaxInt32 {
		return fmt.Errorf("%q is neither a number of replicas nor all", text)
	}
	*r = Replicas(c)
	return nil
}

// UnmarshalYAML reads a number as it is written.
func (r *Replicas) UnmarshalYAML(node ast.Node) error { return unmarshalScalar(node, r.UnmarshalText) }

// String is the number, or all.
func (r Replicas) String() string {
	if r == AllReplicas {
		return "all"
	}
	return strconv.Itoa(int(r))
}

// Text is a string that is taken as it is written: a bare 007 is a name, not the number 7.
type Text string

// UnmarshalYAML keeps the text as it is written.
func (t *Text) UnmarshalYAML(node ast.Node) error {
	return unmarshalScalar(node, func(text []byte) error {
		*t = Text(text)
		return nil
	})
}

// FileMode is the permission bits of a file, in octal; 0: not set.
type FileMode fs.FileMode

// UnmarshalText parses octal digits; what is not a permission is an error.
func (m *FileMode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = 0
		return nil
	}
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || n > uint64(fs.ModePerm) {
		return fmt.Errorf("%q is not an octal mode like 700", text)
	}
	*m = FileMode(n)
	return nil
}

// UnmarshalYAML reads a bare 700 or 0700 as octal digits, not as a number.
func (m *FileMode) UnmarshalYAML(node ast.Node) error { return unmarshalScalar(node, m.UnmarshalText) }

// String is the octal digits; empty if it is not set.
func (m FileMode) String() string {
	if m == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(m), 8)
}

// Secret is a string that does not show itself when printed or logged.
type Secret string

// UnmarshalYAML keeps the text as it is written: a bare 007 is a password, not the number 7.
func (s *Secret) UnmarshalYAML(node ast.Node) error {
	switch n := node.(type) {
	case *ast.LiteralNode: // a block, after | or >
		*s = Secret(n.Value.Value)
	case ast.ScalarNode:
		*s = Secret(n.GetToken().Value)
	default:
		return errors.New("a password is a single string")
	}
	return nil
}

// String hides the secret, and says only whether there is one.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[hidden]"
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the secret from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
