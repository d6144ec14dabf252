package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestTheSlowLogIsCountedAndEmptied(t *testing.T) {
	log := observe.New(observe.NewBudget(10), func() observe.Settings { return observe.Settings{Len: 10} })
	a := startProxy(t, redistest.Start(t), func(o *Options) { o.SlowLog = log }).session(2)
	log.Ended(observe.Ending{})
	log.Ended(observe.Ending{})
	a.want("LOCKSLOW LEN", ":2")
	a.want("LOCKSLOW RESET", "OK")
	a.want("LOCKSLOW LEN", ":0")
}
