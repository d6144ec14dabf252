package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as in redis.conf: 1k is 1000, 1kb is 1024, likewise m, mb, g, gb; no unit is
// bytes. 1kib is 1024, too.
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
	{"kib", Kibibyte},
	{"mib", Mebibyte},
	{"gib", Gibibyte},
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

// MemoryLimit is an amount of memory: bytes, written as a Size, or, if it is negative, that many percent of the memory
// that this process may have, written as 50%.
type MemoryLimit int64

// UnmarshalText parses a size or a share.
func (m *MemoryLimit) UnmarshalText(text []byte) error {
	digits, isShare := strings.CutSuffix(string(text), "%")
	if !isShare {
		var size Size
		if err := size.UnmarshalText(text); err != nil {
			return fmt.Errorf("%q is neither a size like 512mb nor a share like 50%%", text)
		}
		*m = MemoryLimit(size)
		return nil
	}
	n, err := strconv.ParseUint(digits, 10, 8)
	if err != nil || n < 1 || n > 100 {
		return fmt.Errorf("%q is not a share between 1%% and 100%%", text)
	}
	*m = -MemoryLimit(n)
	return nil
}

// String is what UnmarshalText reads.
func (m MemoryLimit) String() string {
	if m < 0 {
		return strconv.FormatInt(int64(-m), 10) + "%"
	}
	return Size(m).String()
}

// LeastMemory is the smallest budget with which clients can be served.
const LeastMemory = 32 * Mebibyte

// Of returns the limit in bytes, if available is the number of bytes that the process may have.
func (m MemoryLimit) Of(available uint64) int {
	if m >= 0 {
		return int(m)
	}
	return max(int(min(available, math.MaxInt)/100)*int(-m), int(LeastMemory))
}

// List is texts.
type List []string

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

// String is the number, or all.
func (r Replicas) String() string {
	if r == AllReplicas {
		return "all"
	}
	return strconv.Itoa(int(r))
}

// Secret is a string that does not show itself when printed or logged.
type Secret string

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
