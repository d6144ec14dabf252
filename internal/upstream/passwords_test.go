package upstream

import (
	"strconv"
	"testing"
)

func TestTheLatestPasswordOfAUserIsProven(t *testing.T) {
	var p acceptedPasswords
	if _, ok := p.Proven("u"); ok {
		t.Error("a password is proven that was never accepted")
	}
	p.Prove("u", "old")
	p.Prove("u", "new")
	p.Prove("v", "other")
	p.Disprove("u", "old") // Redis has refused it after the new one was accepted
	if password, ok := p.Proven("u"); password != "new" || !ok {
		t.Errorf("%q, %v", password, ok)
	}
	p.Disprove("u", "new")
	if password, ok := p.Proven("u"); ok {
		t.Errorf("%q is proven after a refusal", password)
	}
	if password, ok := p.Proven("v"); password != "other" || !ok {
		t.Errorf("another user's: %q, %v", password, ok)
	}
}

// A client chooses the names of users where Redis accepts any.
func TestTheNumberOfProofsIsBounded(t *testing.T) {
	var p acceptedPasswords
	for i := range 3*maxProven + 1 {
		user := strconv.Itoa(i)
		if p.Prove(user, "x"); len(p.proven) > maxProven {
			t.Fatalf("%d passwords are remembered", len(p.proven))
		}
		if _, ok := p.Proven(user); !ok {
			t.Fatalf("the password of user %d was accepted just now", i)
		}
	}
}
