package session

import "testing"

func TestFramesAreReadByTheirFirstWordAndLastNumber(t *testing.T) {
	for frame, want := range map[string]struct {
		verb string
		n    int64
	}{
		"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:2\r\n":        {"subscribe", 2},
		">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n":           {"unsubscribe", 0},
		">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$4\r\n:99\r\r\n": {"message", 0},
		"*2\r\n$4\r\npong\r\n$0\r\n\r\n":                    {"pong", 0},
		"*1\r\n$30\r\n012345678901234567890123456789\r\n":   {},
		"*1\r\n:5\r\n":                   {},
		"*0\r\n":                         {},
		"+OK\r\n":                        {},
		"*3\r\n$-1\r\n$1\r\na\r\n:1\r\n": {},
		"*3\r\n$12\r\npunsubscribe\r\n$-1\r\n:7\r\n":            {"punsubscribe", 7},
		">2\r\n$10\r\ninvalidate\r\n*1\r\n$3\r\n:1\r\r\n":       {"invalidate", 0},
		">4\r\n$8\r\npmessage\r\n$1\r\na\r\n$1\r\nb\r\n:12\r\n": {"pmessage", 12},
	} {
		if verb, n := readFrame([]byte(frame)); verb != want.verb || n != want.n && verb != "message" && verb != "invalidate" {
			t.Errorf("%q: %s, %d, want %s, %d", frame, verb, n, want.verb, want.n)
		}
	}
}

// Redis counts channels and patterns together, and shard channels apart.
func TestConfirmationsSayHowManySubscriptionsThereAre(t *testing.T) {
	var s subscriptions
	for _, c := range []struct {
		verb string
		n    int64
		want subscriptions
	}{
		{"subscribe", 1, subscriptions{Channels: 1}},
		{"subscribe", 2, subscriptions{Channels: 2}},
		{"psubscribe", 3, subscriptions{Channels: 2, Patterns: 1}},
		{"ssubscribe", 1, subscriptions{Channels: 2, Patterns: 1, Shards: 1}},
		{"unsubscribe", 2, subscriptions{Channels: 1, Patterns: 1, Shards: 1}},
		{"punsubscribe", 1, subscriptions{Channels: 1, Shards: 1}},
		{"unsubscribe", 0, subscriptions{Shards: 1}},
		{"message", 9, subscriptions{Shards: 1}},
		{"sunsubscribe", 0, subscriptions{}},
	} {
		s.confirm(c.verb, c.n)
		c.want.most = s.most
		if s != c.want || s.subscribed() != (c.want.Channels+c.want.Patterns+c.want.Shards > 0) {
			t.Fatalf("after %s %d: %+v, want %+v", c.verb, c.n, s, c.want)
		}
	}
}

func TestManySubscriptionsLeaveATrace(t *testing.T) {
	var s subscriptions
	for n := range int64(5) {
		if s.grown() {
			t.Errorf("at %d", n)
		}
		s.confirm("subscribe", n+1)
	}
	s.confirm("unsubscribe", 0)
	s.confirm("message", 0)
	if !s.grown() {
		t.Error("five leave none")
	}
}
