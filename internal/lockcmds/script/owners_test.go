package script

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
		name := Default(someUUID, token)
		if !IsDefault(name) || !IsDefault(name+":17") || IsDefault(name+":") || IsDefault(name+":x") {
			t.Fatalf("%s is not known as a default owner", token)
		}
		if sessionOf(name+":17") != name || sessionOf(name) != name || sessionOf("job:17") != "job:17" {
			t.Fatal("not the session of an owner")
		}
	}
}

func TestOtherNamesAreNoDefaultOwners(t *testing.T) {
	for _, other := range []string{
		someUUID + ":17", // a thread of Redisson's
		someUUID + ":1234567890123456789x", strings.ToUpper(someUUID[:35]) + "g:1234567890123456789",
		someUUID + "-1234567890123456789", strings.Repeat("a", 56), "0f8fad5bxd9cb-469f-a165-70867728950e:1234567890123456789",
		someUUID + ":123456789012345678a",
	} {
		if IsDefault(other) {
			t.Errorf("%s is taken for a default owner", other)
		}
	}
}

func TestSharedPlacesAreRecognized(t *testing.T) {
	for _, name := range []string{CrowdOf(someUUID, 7), someUUID + ":plain-74c4048b", strings.ToUpper(someUUID) + ":plain-74c4048b", someUUID + ":plain-"} {
		if !IsCrowd(name) {
			t.Errorf("%s is not taken for a crowd's place", name)
		}
	}
	for _, name := range []string{"plain-74c4048b", "job:plain-74c4048b", someUUID + "-plain-74c4048b", someUUID + "x:plain-1"} {
		if IsCrowd(name) {
			t.Errorf("%s is taken for a crowd's place", name)
		}
	}
}

func TestProcessIsTheUUID(t *testing.T) {
	for name, want := range map[string]string{
		Default(someUUID, NewToken()): someUUID, someUUID + ":17": someUUID, CrowdOf(someUUID, 7): someUUID,
		someUUID: "", "job-4711": "", someUUID + "x:1": "",
	} {
		if got := Process(name); got != want {
			t.Errorf("the process of %s is %q, want %q", name, got, want)
		}
	}
}
