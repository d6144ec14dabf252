package sentinel

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/upstream/handshake"
)

// Over the years all Sentinels of the configuration may be replaced.
func TestSentinelsAreLearntFromEachOther(t *testing.T) {
	watch(t, func(s *stand) {
		next := &fake{epoch: 1, addr: "10.0.0.1:6379", id: "10.1.0.9:26379"}
		s.locked(func() { s.others["nine.example:26379"] = next }) // behind NAT
		for _, f := range s.fakes {
			f.mu.Lock()
			f.lists = []string{"10.1.0.9:26379"}
			f.mu.Unlock()
		}
		s.after(3 * time.Second)
		for _, f := range s.fakes {
			f.die()
		}
		next.set(2, "10.0.0.3:6379")
		s.after(2 * time.Second)
		s.want(t, first, "10.0.0.1:6379>10.0.0.3:6379")
	})
}

func TestASentinelThatDoesNotKnowThePrimaryTeachesNothing(t *testing.T) {
	watch(t, func(s *stand) {
		next := &fake{epoch: 2, addr: "10.0.0.3:6379", id: "9.9.9.9:1"}
		s.locked(func() { s.others["9.9.9.9:1"] = next })
		s.fakes[0].mu.Lock()
		s.fakes[0].lists, s.fakes[0].name = []string{"9.9.9.9:1"}, "other"
		s.fakes[0].mu.Unlock()
		s.after(10 * time.Second)
		s.want(t, first)
	})
}

func TestASentinelIsAskedAtOneAddress(t *testing.T) {
	watch(t, func(s *stand) {
		s.fakes[0].mu.Lock()
		s.fakes[0].lists = []string{"s1:26379", "10.1.0.1:26379=s2:26379"} // the configuration has another name for the second one
		s.fakes[0].mu.Unlock()
		s.after(5 * time.Second)
		if n := s.logs.FilterMessageSnippet("another sentinel").Len(); n != 0 {
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
		s.fakes[1].mu.Lock()
		s.fakes[1].refuses = &handshake.RefusedError{Reply: "WRONGPASS invalid username-password pair or user is disabled."}
		s.fakes[1].mu.Unlock()
		s.after(2 * time.Minute)
		if n := s.logs.FilterLevelExact(zap.ErrorLevel).Len(); n != 1 {
			t.Errorf("%d errors of a wrong password", n)
		}
		s.fakes[1].mu.Lock()
		s.fakes[1].down, s.fakes[1].refuses = false, nil
		s.fakes[1].mu.Unlock()
		s.after(time.Minute)
		if n := s.logs.FilterMessage("a sentinel answers again").Len(); n != 1 {
			t.Errorf("%d entries of its return", n)
		}
	})
}
