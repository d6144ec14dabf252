package grammar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

func words(line string) [][]byte {
	var args [][]byte
	for w := range strings.SplitSeq(line, " ") {
		if w == "''" {
			w = ""
		}
		args = append(args, []byte(w))
	}
	return args
}

func TestCommandsParse(t *testing.T) {
	for _, c := range []struct {
		line string
		want Command
	}{
		{"LOCK a", Command{Verb: Lock, Key: "a", Wait: forever, Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"tryLock a", Command{Verb: TryLock, Key: "a", Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"FairLock a", Command{Verb: FairLock, Key: "a", Wait: forever, Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"lock a wait 0", Command{Verb: Lock, Key: "a", Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"lock wait wait 5 owner wait", Command{Verb: Lock, Key: "wait", Wait: 5 * time.Millisecond, Owner: "wait", Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"lock a WAIT 1500 PX 20 OWNER me GRACE 0 MAXHOLD 60000", Command{
			Verb: Lock, Key: "a", Wait: 1500 * time.Millisecond, Lease: 20 * time.Millisecond, Owner: "me", MaxHold: time.Minute, Sync: unsetSync,
		}},
		{"lock a sync 0", Command{Verb: Lock, Key: "a", Wait: forever, Grace: unset, MaxHold: unset}},
		{"FAIRLOCK a SYNC 2", Command{Verb: FairLock, Key: "a", Wait: forever, Grace: unset, MaxHold: unset, Sync: 2}},
		{"trylock a wait 10 ex 3", Command{Verb: TryLock, Key: "a", Wait: 10 * time.Millisecond, Lease: 3 * time.Second, Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"lock shared SHARED wait 0", Command{Verb: Lock, Key: "shared", Shared: true, Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"unlock a fence 1 shared", Command{Verb: Unlock, Key: "a", Fence: 1, Shared: true, Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"TRYLOCK a NOTE x SHARED", Command{Verb: TryLock, Key: "a", Note: "x", Shared: true, Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"FORCEUNLOCK a OWNER x", Command{Verb: ForceUnlock, Key: "a", Owner: "x", Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"UNLOCK a", Command{Verb: Unlock, Key: "a", Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"unlock a fence 9007199254740993 owner x", Command{Verb: Unlock, Key: "a", Fence: 9007199254740993, Owner: "x", Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"EXTENDLOCK a PX 5 OWNER x", Command{Verb: ExtendLock, Key: "a", Lease: 5 * time.Millisecond, Owner: "x", Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"LOCKINFO a", Command{Verb: LockInfo, Key: "a", Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"LOCKLIST", Command{Verb: LockList, Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"LOCKLIST match job:* count 7", Command{Verb: LockList, Match: "job:*", Count: 7, Grace: unset, MaxHold: unset, Sync: unsetSync}},
		{"FORCEUNLOCK a", Command{Verb: ForceUnlock, Key: "a", Grace: unset, MaxHold: unset, Sync: unsetSync}},
	} {
		got, err := Parse(words(c.line))
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.line, diff)
		}
	}
}

func TestMistakesAreToldInRedissWords(t *testing.T) {
	const (
		syntax   = "ERR syntax error"
		outRange = "ERR value is not an integer or out of range"
		derived  = "ERR a key that another lock has beside its own cannot be a lock"
		owner    = "ERR owner must be 1 to 256 bytes without braces, and not 'fence' or 'mode'"
	)
	arity := func(verb string) string { return "ERR wrong number of arguments for '" + verb + "' command" }
	expire := func(verb string) string { return "ERR invalid expire time in '" + verb + "' command" }
	for _, c := range []struct{ line, want string }{
		{"LOCK", arity("lock")},
		{"trylock", arity("trylock")},
		{"FAIRLOCK", arity("fairlock")},
		{"unlock", arity("unlock")},
		{"extendlock a", arity("extendlock")},
		{"extendlock a px", arity("extendlock")},
		{"lockinfo", arity("lockinfo")},
		{"lockinfo a b", arity("lockinfo")},
		{"forceunlock", arity("forceunlock")},
		{"forceunlock a b", syntax},
		{"lock a shared shared", syntax},
		{"lock a shared 1", syntax},
		{"lockinfo a shared", arity("lockinfo")},
		{"lock ''", syntax},
		{"lock " + strings.Repeat("n", 4097), "ERR the name of the lock is longer than 4096 bytes"},
		{"lock " + strings.Repeat("n", 4096) + " wat 1", syntax},
		{"lock {t}:o:rwlock_timeout:1", derived},
		{"unlock t{x}::rwlock_timeout:20", derived},
		{"lock redisson_lock__channel:{t}", derived},
		{"lock {t}:o:rwlock_timeout:x wat 1", syntax},
		{"lock a wat 1", syntax},
		{"lock a wait", syntax},
		{"lock a wait 1 px", syntax},
		{"lock a wait 1 WAIT 1", syntax},
		{"lock a px 1 ex 1", syntax},
		{"lock a ex 1 ex 1", syntax},
		{"lock a owner x owner x", syntax},
		{"lock a fence 1", syntax},
		{"unlock a px 1", syntax},
		{"unlock a wait 1", syntax},
		{"unlock a sync 1", syntax},
		{"extendlock a px 1 sync 1", syntax},
		{"lock a sync 1 sync 1", syntax},
		{"lock a sync all", outRange},
		{"lock a sync -1", outRange},
		{"lock a sync 2147483648", outRange},
		{"extendlock a owner x", syntax},
		{"extendlock a px 1 wait 1", syntax},
		{"locklist a", syntax},
		{"locklist px 1", syntax},
		{"lock a wait x", outRange},
		{"lock a wait -1", outRange},
		{"lock a wait +1", outRange},
		{"lock a wait 01", outRange},
		{"lock a wait -0", outRange},
		{"lock a wait 1.5", outRange},
		{"lock a wait ''", outRange},
		{"lock a wait 1_0", outRange},
		{"lock a wait 0x1", outRange},
		{"lock a wait 9223372036854775808", outRange},
		{"lock a wait 9223372036854775807", outRange},
		{"lock a grace -1", outRange},
		{"lock a maxhold -1", outRange},
		{"lock a px x", outRange},
		{"lock a px 9223372036854775808", outRange},
		{"lock a px 0", expire("lock")},
		{"trylock a px -5", expire("trylock")},
		{"fairlock a ex 9223372036854775807", expire("fairlock")},
		{"extendlock a ex 0", expire("extendlock")},
		{"unlock a fence 0", outRange},
		{"unlock a fence -7", outRange},
		{"locklist count 0", outRange},
		{"lock a owner ''", owner},
		{"lock a owner fence", owner},
		{"lock a owner mode", owner},
		{"lock a owner {x}", owner},
		{"unlock a owner }", owner},
		{"lock a owner " + strings.Repeat("x", 257), owner},
	} {
		_, err := Parse(words(c.line))
		if text, _, _ := strings.Cut(fmt.Sprint(err), ": "); text != c.want { // a syntax error goes on with the word
			t.Errorf("%s: %v, want %s", c.line, err, c.want)
		}
	}
}

// A syntax error names the word that is wrong, whatever its bytes are, and the option that is like it.
func TestSyntaxErrorsNameTheWord(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"LOCK", "a", "WAT", "3"}, "unknown option 'WAT', did you mean WAIT?"},
		{[]string{"LOCK", "a", "ownr", "x"}, "unknown option 'ownr', did you mean OWNER?"},
		{[]string{"TRYLOCK", "a", "NX"}, "unknown option 'NX'"},
		{[]string{"LOCK", "a", ""}, "unknown option ''"},
		{[]string{"LOCK", "a", "x'\r\n\xff\xc3\xa9", "1"}, "unknown option 'x?????'"},
		{[]string{"LOCK", "a", strings.Repeat("w", 1<<20), "1"}, "unknown option '" + strings.Repeat("w", 32) + "...'"},
		{[]string{"LOCK", "a", "PX", "1", "ex", "1"}, "repeated, or excluded by an option in front of it: 'ex'"},
		{[]string{"LOCK", "a", "WAIT"}, "no value for option 'WAIT'"},
		{[]string{"EXTENDLOCK", "a", "OWNER", "x"}, "PX or EX is missing"},
		{[]string{"UNLOCK", ""}, "the name of the lock is empty; is a variable not set?"},
	} {
		var args [][]byte
		for _, arg := range c.args {
			args = append(args, []byte(arg))
		}
		if _, err := Parse(args); err == nil || err.Error() != "ERR syntax error: "+c.want {
			t.Errorf("%.40q: %v, want %s", c.args, err, c.want)
		}
	}
}

func TestOnlyTheLockCommandsAreVerbs(t *testing.T) {
	for _, s := range Specs() {
		for _, name := range []string{s.Name, strings.ToUpper(s.Name), strings.ToUpper(s.Name[:1]) + s.Name[1:]} {
			if !IsVerb([]byte(name)) {
				t.Errorf("%s is no verb", name)
			}
		}
		if s.Verb.String() != s.Name {
			t.Errorf("%s prints as %s", s.Name, s.Verb)
		}
	}
	for _, name := range []string{"", "get", "loc", "lock ", "locks", "unlocked", "forceunlocks", "l\x0fck", "lock\x00"} {
		if IsVerb([]byte(name)) {
			t.Errorf("%q is a verb", name)
		}
	}
	name := []byte("FORCEUNLOCK")
	if n := testing.AllocsPerRun(100, func() { IsVerb(name) }); n != 0 {
		t.Errorf("IsVerb allocates %v times", n)
	}
}

const someUUID = "0f8fad5b-d9cb-469f-a165-70867728950e"

func TestNobodyCanNameAnOwnerThatProxiesGiveOut(t *testing.T) {
	for owner, want := range map[string]string{
		script.SessionName(someUUID, script.NewToken()) + ":1": "ERR OWNER cannot be the default owner of a connection",
		script.CrowdOf(someUUID, 7):                            "ERR OWNER cannot be the place of a proxy's waiters",
	} {
		for _, line := range []string{"LOCK k OWNER ", "TRYLOCK k OWNER ", "FAIRLOCK k OWNER ", "UNLOCK k OWNER ", "EXTENDLOCK k PX 1 OWNER "} {
			if _, err := Parse(words(line + owner)); err == nil || err.Error() != want {
				t.Errorf("%s%s: %v", line, owner, err)
			}
		}
	}
	if _, err := Parse(words("LOCK k OWNER " + someUUID + ":17")); err != nil {
		t.Errorf("the owner of a thread of Redisson's is refused: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("LOCK\x00a\x00WAIT\x005\x00PX\x0010\x00OWNER\x00x\x00GRACE\x000\x00MAXHOLD\x001")
	f.Add("UNLOCK\x00a\x00FENCE\x0012")
	f.Add("LOCKLIST\x00MATCH\x00*\x00COUNT\x003")
	f.Add("EXTENDLOCK\x00a\x00EX\x0099999999999")
	f.Fuzz(func(t *testing.T, line string) {
		var args [][]byte
		for w := range strings.SplitSeq(line, "\x00") {
			args = append(args, []byte(w))
		}
		c, err := Parse(args)
		if err != nil {
			if text := err.Error(); !strings.HasPrefix(text, "ERR ") || strings.ContainsAny(text, "\r\n") {
				t.Fatalf("%q: %q is no error reply", line, text)
			}
			return
		}
		if !IsVerb(args[0]) || (c.Key == "") != (c.Verb == LockList) || c.Lease < 0 || c.Fence < 0 || c.Count < 0 {
			t.Fatalf("%q: %+v", line, c)
		}
		if c.Owner != "" && !validOwner(c.Owner) {
			t.Fatalf("%q: owner %q", line, c.Owner)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	args := words("LOCK job:17 WAIT 1000 PX 30000")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(args); err != nil {
			b.Fatal(err)
		}
	}
}

func TestANoteIsBounded(t *testing.T) {
	if c, err := Parse(words("LOCK k NOTE " + strings.Repeat("x", 256))); err != nil || len(c.Note) != 256 {
		t.Errorf("%d bytes, %v", len(c.Note), err)
	}
	if _, err := Parse(words("LOCK k NOTE " + strings.Repeat("x", 257))); err == nil || err.Error() != "ERR note is longer than 256 bytes" {
		t.Errorf("%v", err)
	}
}
