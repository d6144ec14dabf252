package cli

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// at returns a holder at a proxy that gives some answers.
func at(t *testing.T, answers ...string) (*Holder, *stubProxy) {
	t.Helper()
	p := startStub(t, answers...)
	target, err := parseTarget(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	h := newHolder(target, "k", 5*time.Second)
	h.Owner = "o"
	t.Cleanup(h.Disconnect)
	return h, p
}

const extension = "EXTENDLOCK k OWNER o PX 5000"

func TestAGrantIsMadeSureOf(t *testing.T) {
	h, p := at(t, ":7", ":1", "_")
	h.Limit = time.Minute
	before := time.Now()
	sure, err := h.Lock(t.Context(), "FAIRLOCK", 1500*time.Millisecond)
	if err != nil || h.Fence != 7 || sure.Before(before) || sure.After(time.Now()) {
		t.Errorf("fence %d, sure %v after the begin, %v", h.Fence, sure.Sub(before), err)
	}
	h.Limit = 0
	if _, err := h.Lock(t.Context(), "LOCK", -1); !errors.Is(err, errBusy) {
		t.Errorf("a null is answered with %v", err)
	}
	p.want(t, "FAIRLOCK k OWNER o GRACE 5000 WAIT 1500 MAXHOLD 65000", extension, "LOCK k OWNER o GRACE 5000")
}

// Each command says what kind of hold it is about, also over a new connection: a proxy that does not know the owner would
// take a shared hold for the exclusive one. A permit is known by its fence, because another acquire would take one more.
func TestCommandsNameTheKindOfHold(t *testing.T) {
	const permit = "EXTENDLOCK k OWNER o PX 5000 FENCE 7"
	for _, test := range []struct {
		shared bool
		most   int
		asked  []string
	}{
		{true, 0, []string{
			"LOCK k OWNER o SHARED GRACE 5000", "EXTENDLOCK k OWNER o SHARED PX 5000", "LOCK k OWNER o SHARED GRACE 5000 WAIT 0",
			"EXTENDLOCK k OWNER o SHARED PX 5000", "UNLOCK k OWNER o SHARED FENCE 7",
		}},
		{false, 3, []string{"LOCK k OWNER o GRACE 5000 LIMIT 3", permit, permit, "UNLOCK k OWNER o FENCE 7"}},
	} {
		answers := slices.Repeat([]string{":1"}, len(test.asked))
		answers[0] = ":7"
		if test.shared {
			answers[2] = ":7"
		}
		h, p := at(t, answers...)
		h.Shared, h.Most = test.shared, test.most
		if _, err := h.Lock(t.Context(), "LOCK", -1); err != nil {
			t.Fatal(err)
		}
		h.Disconnect()
		if _, err := h.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.want(t, test.asked...)
	}
}

// A loss is told from a failure, after which the lock may still be held.
func TestOnlySomeErrorsAreLosses(t *testing.T) {
	for reply, lost := range map[string]bool{
		"-NOTHELD x": true, "-LOSTLEASE x": true, "-WRONGTYPE x": true,
		"-NOTHELDX x": false, "": false,
	} {
		h, p := at(t, ":7", ":1", reply)
		if _, err := h.Lock(t.Context(), "LOCK", 0); err != nil {
			t.Fatal(err)
		}
		_, err := h.Extend(t.Context())
		if err == nil || errors.Is(err, errLost) != lost {
			t.Errorf("%q gives %v", reply, err)
		}
		if (h.Conn() == nil) != (reply == "") {
			t.Errorf("%q: the connection is left: %v", reply, h.Conn() == nil)
		}
		p.want(t, "LOCK k OWNER o GRACE 5000 WAIT 0", extension, extension)
	}
}

// On a new connection the holder takes the lock again first: it must be the same grant.
func TestTheGrantIsTakenAlongToANewConnection(t *testing.T) {
	const again = "LOCK k OWNER o GRACE 5000 WAIT 0"
	for _, test := range []struct {
		answers []string
		lost    bool
		asked   []string
	}{
		{[]string{":7", ":1"}, false, []string{again, extension}},
		{[]string{"_"}, true, []string{again}},
		{[]string{":8", ":1"}, true, []string{again, "UNLOCK k OWNER o"}}, // a new grant: the old one has ended
		{[]string{"-WRONGTYPE x"}, true, []string{again}},
	} {
		h, p := at(t, test.answers...)
		h.Fence = 7
		if _, err := h.Extend(t.Context()); errors.Is(err, errLost) != test.lost || !test.lost && err != nil {
			t.Errorf("%q: %v", test.answers, err)
		}
		p.want(t, test.asked...)
	}
}

func TestReleaseEndsAllHolds(t *testing.T) {
	const unlock = "UNLOCK k OWNER o FENCE 7"
	for _, test := range []struct {
		answers []string
		want    error
	}{
		{[]string{":0", ":0", ":1"}, nil},
		{[]string{"-NOTHELD x"}, errLost},
		{[]string{"", "-NOTHELD x"}, nil}, // the answer to the first one is missing
		{[]string{"-CLUSTERDOWN x", ":1"}, nil},
	} {
		h, p := at(t, test.answers...)
		h.Fence = 7
		if err := h.Release(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%q: %v, want %v", test.answers, err, test.want)
		}
		p.want(t, slices.Repeat([]string{unlock}, len(test.answers))...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h, _ := at(t)
	h.Fence = 7
	cancel()
	if err := h.Release(ctx); err == nil || errors.Is(err, errLost) {
		t.Errorf("without time: %v", err)
	}
}

// A lock that is kept for a while longer gets the rest as its lease, and no connection that renews it.
func TestALockIsKeptForTheRest(t *testing.T) {
	const left, until = "UNLOCK k OWNER o FENCE 7", "EXTENDLOCK k OWNER o PX "
	for _, test := range []struct {
		answers []string
		kept    bool
		want    error
	}{
		{[]string{":1"}, true, nil},
		{[]string{"", "-CLUSTERDOWN x", ":1"}, true, nil},
		{[]string{"-NOTHELD x"}, true, errLost},
		{[]string{":1"}, false, nil},
	} {
		h, p := at(t, test.answers...)
		h.Fence = 7
		moment := time.Now()
		if test.kept {
			moment = moment.Add(time.Minute)
		}
		if err := h.End(t.Context(), moment); !errors.Is(err, test.want) {
			t.Errorf("%q: %v, want %v", test.answers, err, test.want)
		}
		if test.want == nil && test.kept && h.Conn() != nil {
			t.Errorf("%q: the proxy goes on renewing it", test.answers)
		}
		for _, asked := range p.heard() {
			rest, _ := strconv.Atoi(strings.TrimPrefix(asked, until))
			if test.kept && (rest < 30_000 || rest > 60_000) || !test.kept && asked != left {
				t.Errorf("%q: the proxy was asked %q", test.answers, asked)
			}
		}
		if n := len(p.heard()); n != len(test.answers) {
			t.Errorf("%q: %d questions", test.answers, n)
		}
	}
}
