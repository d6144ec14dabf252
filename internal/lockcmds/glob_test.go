package lockcmds

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

var patterns = []string{
	"*", "**", "?", "a", "a*", "*a", "*a*", "a?c", "a*b*c", "[abc]", "[^abc]", "[a-c]x", "[c-a]x", "[^a-c]*", `\*`, `\?a`, `a\`, `[\]]`,
	"[", "[a", "[^", "[]", "[^]a", "[a-", "a[b", "*[bc]?", "job:[0-9]*:*", "x*y*z*x", `[\-]`, `[a\`, "-", "[--a]", "*\x00*", "\xff?",
}

var names = []string{
	"a", "b", "ab", "abc", "aXc", "ax", "bx", "dx", "*", "?", "?a", `a\`, "]", "-", "job:17:x", "job:x", "xyzx", "xyxyzzx", "[", "[a", "\x00",
	"a\x00b", "\xff\xfe", "aaaaaaaaaaaaaaaaaaaaaaaab", strings.Repeat("ab", 100), "[^", "^", "a[b", "ab]", "É",
}

func TestPatternsMeanWhatTheyMeanToRedis(t *testing.T) {
	srv := redistest.Start(t)
	c := srv.Client(t)
	for _, name := range names {
		if err := c.Set(t.Context(), name, "", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range patterns {
		want := c.Keys(t.Context(), pattern).Val()
		slices.Sort(want)
		var got []string
		for _, name := range names {
			if matches(pattern, name) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q matches %q, for Redis %q", pattern, got, want)
		}
	}
}

func TestEmptyPatternMatchesTheEmptyNameOnly(t *testing.T) {
	if !matches("", "") || matches("", "a") {
		t.Error("the empty pattern is a pattern like others")
	}
}

// What takes a matcher that tries all stars longer than the universe has is a matter of milliseconds here.
func TestManyStarsAgainstALongNameAreQuick(t *testing.T) {
	name := strings.Repeat("a", 20_000)
	for _, pattern := range []string{
		strings.Repeat("a*", 500) + "b", strings.Repeat("*a", 500) + "b", "*" + strings.Repeat("a", 500) + "b", strings.Repeat("*?", 500) + "b",
		strings.Repeat("*[a-z]", 300) + "b",
	} {
		began := time.Now()
		if matches(pattern, name) {
			t.Errorf("%.20s… matches", pattern)
		}
		if d := time.Since(began); d > patience {
			t.Errorf("%.20s… took %v", pattern, d)
		}
	}
}

// naive is the meaning of stars and question marks in one line each.
func naive(pattern, name string) bool {
	switch {
	case pattern == "":
		return name == ""
	case pattern[0] == '*':
		return naive(pattern[1:], name) || name != "" && naive(pattern, name[1:])
	case name == "":
		return false
	}
	return (pattern[0] == '?' || pattern[0] == name[0]) && naive(pattern[1:], name[1:])
}

func FuzzStars(f *testing.F) {
	f.Add("*a?b*", "xaybz")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 12 || len(name) > 12 || strings.ContainsAny(pattern, `[\`) {
			t.Skip()
		}
		if got, want := matches(pattern, name), naive(pattern, name); got != want {
			t.Errorf("%q against %q: %v, want %v", pattern, name, got, want)
		}
	})
}
