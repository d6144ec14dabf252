package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/reaper"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

func TestHowAQuestionHasEnded(t *testing.T) {
	for err, want := range map[error]reaper.Failure{
		nil: reaper.OK, contract.ErrInDoubt: reaper.Passing, contract.ErrUnsent: reaper.Passing, script.Error("NOPERM no"): reaper.Final,
	} {
		if got := failureOf(err); got != want {
			t.Errorf("%v: %d", err, got)
		}
	}
}
