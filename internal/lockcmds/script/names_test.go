package script

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestNamesAreRedissons(t *testing.T) {
	for _, c := range []struct{ key, channel, queue, deadlines string }{
		{"foo", "redisson_lock__channel:{foo}", "redisson_lock_queue:{foo}", "redisson_lock_timeout:{foo}"},
		{"{a}b", "redisson_lock__channel:{a}b", "redisson_lock_queue:{a}b", "redisson_lock_timeout:{a}b"},
		{"x{a}y{b}", "redisson_lock__channel:x{a}y{b}", "redisson_lock_queue:x{a}y{b}", "redisson_lock_timeout:x{a}y{b}"},
	} {
		got := []string{Channel(c.key), Queue(c.key), string(appendKey(nil, "deadlines", c.key))}
		if !slices.Equal(got, []string{c.channel, c.queue, c.deadlines}) {
			t.Errorf("%s: %q", c.key, got)
		}
	}
}

// The lease of a shared hold is a key of its own, whatever the names of the lock and of its owner are, and the script
// and the calls agree on it.
func TestTheLeaseOfASharedHoldIsOfOneLockAndOwner(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t).Client(t)
	parts := []string{
		"t", "{t}", "{", "}", ":", "%", "%3A", "%25", "7", "-7", "-", "job", ":rwlock_timeout:1", "{}", "\x00\xff", " ", "A", "%37",
		"aaaaaaaa-0000-4000-8000-000000000001", ":11",
	}
	random := rand.New(rand.NewPCG(1, 2))
	text := func() (text string) {
		for range 1 + random.IntN(4) {
			text += parts[random.IntN(len(parts))]
		}
		return text
	}
	names := redis.NewScript(strings.Join(newComposer().expand([]string{
		"local lock, owner = KEYS[1], ARGV[1]", "--@", "local name = name_of(owner)", "return {timeout_of(name), owner_of(name)}",
	}, map[string]bool{}), "\n"))
	of := map[string][2]string{}
	for range 30_000 {
		lock, owner := text(), strings.NewReplacer("{", "", "}", "").Replace(text())
		if owner == "" {
			continue
		}
		key, pair := timeoutOf(lock, owner), [2]string{lock, owner}
		if other, ok := of[key]; ok && other != pair {
			t.Fatalf("%q and %q have the lease %q", pair, other, key)
		}
		if of[key] = pair; len(of)%16 != 0 {
			continue
		}
		got, err := names.Run(t.Context(), c, []string{lock}, owner).StringSlice()
		if want := []string{key, owner}; err != nil || !slices.Equal(got, want) {
			t.Fatalf("of %q: %q, %v; want %q", pair, got, err, want)
		}
	}
	// Redisson's own names, which its clients look up.
	const theirs = "aaaaaaaa-0000-4000-8000-000000000001:11"
	if got, want := timeoutOf("foo", theirs), "{foo}:"+theirs+":rwlock_timeout:1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
