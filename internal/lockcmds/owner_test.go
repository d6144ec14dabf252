package lockcmds

import (
	"strconv"
	"strings"
	"testing"
)

const someUUID = "0f8fad5b-d9cb-469f-a165-70867728950e"

func TestTokensAreNumbersOfOneLengthAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		token := NewToken()
		n, err := strconv.ParseInt(token, 10, 64)
		if err != nil || len(token) != tokenLength || n < leastToken {
			t.Fatalf("token %s: %v", token, err)
		}
		if seen[token] {
			t.Fatalf("%s came twice", token)
		}
		seen[token] = true
		if !isDefaultOwner(someUUID + ":" + token) {
			t.Fatalf("%s is not known as a default owner", token)
		}
	}
}

func TestNobodyCanNameADefaultOwner(t *testing.T) {
	owner := someUUID + ":" + NewToken()
	for _, line := range []string{"LOCK k OWNER ", "TRYLOCK k OWNER ", "FAIRLOCK k OWNER ", "UNLOCK k OWNER ", "EXTENDLOCK k PX 1 OWNER "} {
		if _, err := Parse(words(line + owner)); err == nil || err.Error() != "ERR OWNER cannot be the default owner of a connection" {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, other := range []string{
		someUUID + ":17", // a thread of Redisson's
		someUUID + ":1234567890123456789x", strings.ToUpper(someUUID[:35]) + "g:1234567890123456789",
		someUUID + "-1234567890123456789", strings.Repeat("a", 56), "0f8fad5bxd9cb-469f-a165-70867728950e:1234567890123456789",
		someUUID + ":123456789012345678a",
	} {
		if _, err := Parse(words("LOCK k OWNER " + other)); err != nil {
			t.Errorf("OWNER %s: %v", other, err)
		}
	}
}

func TestNobodyCanNameThePlaceOfPlainWaiters(t *testing.T) {
	for _, owner := range []string{someUUID + ":plain-74c4048b", strings.ToUpper(someUUID) + ":plain-74c4048b", someUUID + ":plain-"} {
		for _, line := range []string{"LOCK k OWNER ", "TRYLOCK k OWNER ", "FAIRLOCK k OWNER ", "UNLOCK k OWNER ", "EXTENDLOCK k PX 1 OWNER "} {
			if _, err := Parse(words(line + owner)); err == nil || err.Error() != "ERR OWNER cannot be the place of a proxy's waiters" {
				t.Errorf("%s%s: %v", line, owner, err)
			}
		}
	}
	for _, other := range []string{"plain-74c4048b", "job:plain-74c4048b", someUUID + "-plain-74c4048b", someUUID + "x:plain-1"} {
		if _, err := Parse(words("FAIRLOCK k OWNER " + other)); err != nil {
			t.Errorf("OWNER %s: %v", other, err)
		}
	}
}
