package sentinel

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// listing adds Sentinels of which those of the configuration tell. Their ids are their addresses.
func (s *stand) listing(addrs ...string) (others []*fake) {
	for _, addr := range addrs {
		other := &fake{epoch: 1, addr: "10.0.0.1:6379", id: addr}
		s.locked(func() { s.others[strings.Replace(addr, "10.1.0.9", "nine.example", 1)] = other }) // behind NAT
		others = append(others, other)
	}
	for _, f := range s.fakes {
		f.change(func(f *fake) { f.lists = addrs })
	}
	return others
}

// Over the years all Sentinels of the configuration may be replaced.
func TestSentinelsAreLearntFromEachOther(t *testing.T) {
	watch(t, func(s *stand) {
		others := s.listing("10.1.0.9:26379", "10.1.0.9:26380")
		s.after(3 * time.Second)
		for _, f := range s.fakes {
			f.die()
		}
		for _, f := range others {
			f.set(2, "10.0.0.3:6379")
		}
		s.locked(func() { s.primaries["10.0.0.3:6379"] = true })
		s.after(answerLife + 2*time.Second)
		s.want(t, first, "10.0.0.1:6379>10.0.0.3:6379")
	})
}

// Another Sentinel may have got the address of one that is listed. It may watch another primary of the same name.
func TestAStrangerAtTheAddressOfASentinelIsNotHeard(t *testing.T) {
	for _, id := range []string{"stranger", ""} {
		watch(t, func(s *stand) {
			others := s.listing("10.1.0.9:26379", "10.1.0.9:26380")
			for _, f := range others {
				f.id = id
				f.set(9, "10.9.9.9:6379")
			}
			s.after(10 * time.Second)
			s.want(t, first)
			if n := s.logs.FilterMessageSnippet("a learnt sentinel is asked").Len(); n != 2 {
				t.Errorf("%d entries about two Sentinels", n)
			}
			others[1].change(func(f *fake) { f.id = "10.1.0.9:26380" })
			s.joins("10.9.9.9:6379")
			s.after(2 * time.Second)
			s.want(t, first) // by the word of the majority
			s.fakes[0].die()
			s.fakes[1].die()
			s.after(answerLife + 2*time.Second)
			s.want(t, first, "10.0.0.1:6379>10.9.9.9:6379")
		})
	}
}

// joins makes a server a replica by the word of a Sentinel, and a primary by its own.
func (s *stand) joins(addr string) {
	s.fakes[2].change(func(f *fake) { f.knows = append(f.knows, addr) })
	s.locked(func() { s.primaries[addr] = true })
}

// A Sentinel that no configuration names cannot have the proxy go to a server of which no other Sentinel knows.
func TestALearntSentinelAloneDoesNotMoveThePrimary(t *testing.T) {
	for name, tell := range map[string]func(s *stand, f *fake){
		"by its answers": func(s *stand, f *fake) {
			f.set(9, "10.0.0.4:6379")
			s.fakes[0].die()
			s.fakes[1].die()
		},
		"by an event": func(_ *stand, f *fake) {
			f.tell(promoting, "slave 10.0.0.4:6379 10.0.0.4 6379 @ mymaster 10.0.0.1 6379")
		},
	} {
		watch(t, func(s *stand) {
			other := s.listing("10.1.0.9:26379")[0]
			s.after(3 * time.Second)
			s.locked(func() { s.primaries["10.0.0.4:6379"] = true })
			tell(s, other)
			s.after(answerLife + 2*time.Second)
			s.want(t, first)
			s.locked(func() {
				if s.looks > 0 {
					t.Errorf("%s: a server of which no other Sentinel knows has got the proxy's password", name)
				}
			})
			s.joins("10.0.0.4:6379")
			s.after(2 * time.Second)
			tell(s, other)
			s.after(lookEvery)
			s.locked(func() {
				if len(s.moves) != 2 || s.moves[1] != "10.0.0.1:6379>10.0.0.4:6379" {
					t.Errorf("%s: a replica that another Sentinel knows: moves %q", name, s.moves)
				}
			})
		})
	}
}

// Sentinels never forget each other by themselves, so they list those, too, that watch another primary of the same name
// by now.
func TestASentinelThatIsQuietIsNotLearnt(t *testing.T) {
	watch(t, func(s *stand) {
		other := s.listing("10.1.0.9:26379")[0]
		s.listing("10.1.0.9:26379!")
		s.locked(func() { s.others["nine.example:26379"] = other })
		s.after(10 * time.Second)
		if n := s.logs.FilterMessageSnippet("a learnt sentinel is asked").Len(); n != 0 {
			t.Errorf("%d Sentinels are asked that have told nothing for an hour", n)
		}
	})
}

func TestASentinelThatDoesNotKnowThePrimaryTeachesNothing(t *testing.T) {
	watch(t, func(s *stand) {
		next := &fake{epoch: 2, addr: "10.0.0.3:6379", id: "9.9.9.9:1"}
		s.locked(func() { s.others["9.9.9.9:1"] = next })
		s.fakes[0].change(func(f *fake) { f.lists, f.name = []string{"9.9.9.9:1"}, "other" })
		s.after(10 * time.Second)
		s.want(t, first)
	})
}

func TestASentinelIsAskedAtOneAddress(t *testing.T) {
	watch(t, func(s *stand) {
		s.fakes[0].change(func(f *fake) { f.lists = []string{"s1:26379", "10.1.0.1:26379=s2:26379"} }) // the configuration has another name for the second one
		s.after(5 * time.Second)
		if n := s.logs.FilterMessageSnippet("a learnt sentinel is asked").Len(); n != 0 {
			t.Errorf("%d Sentinels are learnt that are asked already", n)
		}
	})
}

// A Sentinel of the configuration that is dead, or refuses the password, is reported once, and so is its return.
func TestASentinelThatCannotBeAskedIsReportedOnce(t *testing.T) {
	watch(t, func(s *stand) {
		s.after(time.Second)
		s.fakes[1].die()
		s.after(2 * time.Minute)
		if n := s.logs.FilterMessage("a sentinel cannot be reached").FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
			t.Errorf("%d warnings of a dead Sentinel", n)
		}
		s.fakes[1].change(func(f *fake) {
			f.refuses = &dial.RefusedError{Reply: "WRONGPASS invalid username-password pair or user is disabled."}
		})
		s.after(2 * time.Minute)
		if n := s.logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
			t.Errorf("%d errors of a wrong password", n)
		}
		s.fakes[1].change(func(f *fake) { f.down, f.refuses = false, nil })
		s.after(time.Minute)
		if n := s.logs.FilterMessage("a sentinel answers again").Len(); n != 1 {
			t.Errorf("%d entries of its return", n)
		}
	})
}
