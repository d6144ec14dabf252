package session

import (
	"testing"
	"time"
)

func TestARepeatedCommandWaitsForTheRestOfItsTime(t *testing.T) {
	const waited = 1500 * time.Millisecond
	for _, one := range []struct{ name, text, want string }{
		{"blpop", "BLPOP a b 5", "BLPOP a b 3.500"},
		{"blpop", "BLPOP a 0", "BLPOP a 0"},
		{"blpop", "BLPOP a x", "BLPOP a x"},
		{"blpop", "BLPOP a nan", "BLPOP a nan"},
		{"blpop", "BLPOP a inf", "BLPOP a inf"},
		{"blpop", "BLPOP a -1", "BLPOP a -1"},
		{"brpop", "BRPOP a 0.5", "BRPOP a 0.001"},
		{"blmove", "BLMOVE a b LEFT LEFT 2", "BLMOVE a b LEFT LEFT 0.500"},
		{"bzmpop", "BZMPOP 2 1 5 MIN", "BZMPOP 0.500 1 5 MIN"},
		{"blmpop", "BLMPOP", "BLMPOP"},
		{"xread", "XREAD COUNT 1 BLOCK 2000 STREAMS block 5", "XREAD COUNT 1 BLOCK 500 STREAMS block 5"},
		{"xread", "XREAD STREAMS block 2000", "XREAD STREAMS block 2000"},
		{"xreadgroup", "XREADGROUP GROUP block 9 BLOCK 1 STREAMS a >", "XREADGROUP GROUP block 9 BLOCK 1 STREAMS a >"},
		{"get", "GET 5", "GET 5"},
	} {
		if got := shortened(one.name, encoded(one.text), waited); string(got) != string(encoded(one.want)) {
			t.Errorf("%s: %q, want %q", one.text, got, one.want)
		}
	}
}
