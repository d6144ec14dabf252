package main

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/cli"
)

// setting is a field of a Config, which its flag and its variable set. It is a pflag.Value.
type setting struct {
	key   string // in the file, sections joined by dots
	field reflect.Value
	tag   reflect.StructTag
	given bool // Set was called: a list is continued
}

// settingsOf lists the settings of a Config, in its order.
func settingsOf(c *Config) []*setting {
	var all []*setting
	var walk func(prefix string, section reflect.Value)
	walk = func(prefix string, section reflect.Value) {
		for field, value := range section.Fields() {
			key := prefix + field.Tag.Get("yaml")
			if field.Type.Kind() == reflect.Struct {
				walk(key+".", value)
			} else {
				all = append(all, &setting{key: key, field: value, tag: field.Tag})
			}
		}
	}
	walk("", reflect.ValueOf(c).Elem())
	return all
}

// flag is the name of the flag: the key's path joined by dashes, but for upstream.address, which is shortened.
func (s *setting) flag() string {
	if s.key == "upstream.address" {
		return "upstream"
	}
	return strings.ReplaceAll(s.key, ".", "-")
}

// variable is the name of the environment variable.
func (s *setting) variable() string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(s.flag(), "-", "_"))
}

// Set implements pflag.Value. Lists are continued by each call, and by commas: a value that has one is for the file.
func (s *setting) Set(text string) error {
	first := !s.given
	s.given = true
	switch target := s.field.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return target.UnmarshalText([]byte(text))
	case *List:
		if first {
			*target = nil
		}
		*target = append(*target, strings.Split(text, ",")...)
	case *time.Duration:
		d, err := cli.ParseDuration(text)
		*target = d
		return err
	case **time.Duration:
		d, err := cli.ParseDuration(text)
		*target = &d
		return err
	case *bool:
		on, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*target = on
	default: // string and Secret
		s.field.SetString(text)
	}
	return nil
}

// String implements pflag.Value: empty if the setting has no value.
func (s *setting) String() string {
	if s.field.Kind() == reflect.Pointer && s.field.IsNil() {
		return ""
	}
	if list, ok := reflect.TypeAssert[List](s.field); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(reflect.Indirect(s.field).Interface())
}

// text is the value for people. A secret is hidden.
func (s *setting) text() string {
	if text := s.String(); text != "" {
		return text
	}
	return "unset"
}

// Type implements pflag.Value. It stands for the value in --help.
func (s *setting) Type() string {
	if s.field.Kind() == reflect.Bool {
		return "bool"
	}
	if name := s.tag.Get("placeholder"); name != "" {
		return name
	}
	switch s.field.Interface().(type) {
	case time.Duration:
		return "DURATION"
	case Count:
		return "N"
	case Size, MemoryLimit:
		return "SIZE"
	case List:
		return "LIST"
	}
	return "TEXT"
}
