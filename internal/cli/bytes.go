package cli

import (
	"reflect"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// KeepBytes makes kong take texts as they are, from arguments and from the environment. By itself it passes each text
// through JSON, which has no place for bytes that are not UTF-8, and divides lists into characters.
func KeepBytes() kong.Option {
	return kong.OptionFunc(func(k *kong.Kong) error {
		if err := kong.KindMapper(reflect.String, kong.MapperFunc(takeText)).Apply(k); err != nil {
			return err
		}
		return kong.TypeMapper(reflect.TypeFor[[]string](), kong.MapperFunc(takeTexts)).Apply(k)
	})
}

func takeText(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err == nil {
		target.SetString(token.String())
	}
	return err
}

// takeTexts takes the elements of a flag's value, or else all arguments that are left.
func takeTexts(ctx *kong.DecodeContext, target reflect.Value) error {
	if ctx.Value.Flag == nil {
		for _, token := range ctx.Scan.PopWhile(kong.Token.IsValue) {
			target.Set(reflect.Append(target, reflect.ValueOf(token.String())))
		}
		return nil
	}
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	for _, element := range kong.SplitEscaped(charactersOf(token.String()), ctx.Value.Tag.Sep) {
		target.Set(reflect.Append(target, reflect.ValueOf(bytesOf(element))))
	}
	return nil
}

// charactersOf has a character for each byte of a text.
func charactersOf(text string) string {
	out := make([]byte, 0, utf8.UTFMax*len(text))
	for _, b := range []byte(text) {
		out = utf8.AppendRune(out, rune(b))
	}
	return string(out)
}

// bytesOf is the inverse of charactersOf.
func bytesOf(characters string) string {
	out := make([]byte, 0, len(characters))
	for _, c := range characters {
		out = append(out, byte(c))
	}
	return string(out)
}
