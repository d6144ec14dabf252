package script

import (
	"strings"
	"testing"
)

const someUUID = "0f8fad5b-d9cb-469f-a165-70867728950e"

func TestTokensAreOfOneLengthAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		token := NewToken()
		if seen[token] || len(token) != tokenLength {
			t.Fatalf("token %s", token)
		}
		seen[token] = true
		name := SessionName(someUUID, token)
		if !IsDefault(name) || !IsDefault(name+":17") || IsDefault(name+":") || IsDefault(name+":x") || isOwned(name) {
			t.Fatalf("%s is not known as a name of a session", name)
		}
		if longest := "{" + name + ":999999999999}"; len(longest) > 64 {
			t.Fatalf("%s has %d bytes", longest, len(longest))
		}
	}
}

func TestOtherNamesAreNoDefaultOwners(t *testing.T) {
	const token = "zzzzzzzzzzz9"
	if !IsDefault(someUUID + ":" + token) {
		t.Error("a token is not known")
	}
	for _, other := range []string{
		someUUID + ":17", // a thread of Redisson's
		someUUID + ":" + token + "9", strings.ToUpper(someUUID[:35]) + "g:" + token, someUUID + ":" + token[1:] + "Z",
		someUUID + "-" + token, strings.Repeat("a", 49), "0f8fad5bxd9cb-469f-a165-70867728950e:" + token,
		someUUID + ":" + token + ":1:1", someUUID + ":" + token + ":-1", someUUID + ":17:1",
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
		SessionName(someUUID, NewToken()): someUUID, someUUID + ":17": someUUID, CrowdOf(someUUID, 7): someUUID,
		someUUID: "", "job-4711": "", someUUID + "x:1": "",
	} {
		if got := Process(name); got != want {
			t.Errorf("the process of %s is %q, want %q", name, got, want)
		}
	}
}
