package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

func TestHowAQuestionHasEnded(t *testing.T) {
	for err, want := range map[error]table.Trouble{
		nil: table.OK, contract.ErrInDoubt: table.Passing, contract.ErrUnsent: table.Passing, script.Error("NOPERM no"): table.Final,
	} {
		if got := failureOf(err); got != want {
			t.Errorf("%v: %d", err, got)
		}
	}
}
