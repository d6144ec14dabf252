package lockcmds

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// callPatience is how long a test waits for what must happen.
const callPatience = 20 * time.Second

func TestRetryGivesUpAtItsLimitOrARefusal(t *testing.T) {
	pool, err := jobs.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pool.Close(callPatience); err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		err  error
		more bool
	}{
		{contract.ErrUnsent, true},
		{contract.ErrInDoubt, true},
		{script.Error("NOPERM no"), false},
		{script.Error("LOADING Redis is loading the dataset in memory"), true},
		{nil, false},
	} {
		life, cancel := context.WithCancel(t.Context())
		own := &calls{Log: zap.NewNop(), Clock: jobs.System{}, Jobs: pool.NewQueue(func(r any) { t.Error(r) }), Life: life}
		calls, ended := make(chan struct{}, 100), make(chan bool, 1)
		own.Retry(cleanup{
			What: "test", Key: "k", Limit: callPatience,
			Task: func(context.Context) error {
				calls <- struct{}{}
				return c.err
			},
			Done: func(ok bool) { ended <- ok },
		})
		<-calls
		select {
		case <-calls:
			if !c.more {
				t.Errorf("%v: tried again", c.err)
			}
		case ok := <-ended:
			if c.more || ok != (c.err == nil) {
				t.Errorf("%v: ended with %v", c.err, ok)
			}
		case <-time.After(callPatience):
			t.Errorf("%v: neither tried again nor ended", c.err)
		}
		cancel()
	}
}
