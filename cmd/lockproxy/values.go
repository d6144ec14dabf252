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

// Size is a number of bytes, written as in redis.conf: 1k is 1000, 1kb is 1024, likewise m, mb, g, gb; no unit is bytes.
type Size int64

const (
	kibibyte Size = 1 << 10
	mebibyte Size = 1 << 20
	gibibyte Size = 1 << 30
)

// sizeUnits is ordered so that no unit hides a longer one that ends like it.
var sizeUnits = []struct {
	suffix string
	bytes  Size
}{
	{"kb", kibibyte},
	{"mb", mebibyte},
	{"gb", gibibyte},
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
	case s > 0 && s%gibibyte == 0:
		return fmt.Sprintf("%dgb", s/gibibyte)
	case s > 0 && s%mebibyte == 0:
		return fmt.Sprintf("%dmb", s/mebibyte)
	case s > 0 && s%kibibyte == 0:
		return fmt.Sprintf("%dkb", s/kibibyte)
	}
	return strconv.FormatInt(int64(s), 10)
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
func (m *FileMode) UnmarshalYAML(node ast.Node) error {
	scalar, ok := node.(ast.ScalarNode)
	if !ok {
		return errors.New("a mode is octal digits")
	}
	return m.UnmarshalText([]byte(scalar.GetToken().Value))
}

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
