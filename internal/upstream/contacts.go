package upstream

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// redisContacts knows whether Redis was available at the last contact, and logs outages. Its methods may be called from
// any goroutine.
type redisContacts struct {
	// Entries is the log for entries that each connection may repeat.
	Entries *logging.Repeats

	addr    zap.Field
	lasting func(error) bool // time does not cure it

	mu     sync.Mutex
	ready  bool  // the last contact with Redis was successful
	cause  error // why not
	outage outageState
}

// Entries of one kind that the log has in a period; the others become a summary.
const (
	entriesMost   = 5
	entriesPeriod = 10 * time.Second
)

// newRedisContacts is for the Redis at an address. cause says an error in words from a small set. lasting reports
// whether time does not cure it.
func newRedisContacts(addr string, log *zap.Logger, cause func(error) string, lasting func(error) bool) *redisContacts {
	return &redisContacts{
		addr: zap.String("addr", addr), Entries: logging.NewRepeats(log, entriesMost, entriesPeriod), lasting: lasting, outage: outageState{Cause: cause},
	}
}

// Ready reports whether Redis was reachable at the last contact, and if not why.
func (c *redisContacts) Ready() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready, c.cause
}

// Note notes the outcome of a contact with Redis, and logs what it means to the operator. Requires no locks.
func (c *redisContacts) Note(err error) {
	c.mu.Lock()
	c.ready, c.cause = err == nil, err
	e := c.outage.Note(time.Now(), err)
	c.mu.Unlock()
	switch e.Kind {
	case noEvent:
	case outageOver:
		c.Entries.Write(zap.InfoLevel, "upstream is available again", "", c.addr, logging.Seconds("unavailable", e.Lasted), zap.Int("failures", e.Failures))
	case outageBegan, outageGoesOn:
		level := zap.ErrorLevel // the configuration is wrong, and time does not cure it
		if !c.lasting(err) {
			level = zap.WarnLevel
		}
		c.Entries.Write(level, e.Cause, "", c.addr, zap.Error(err), logging.Seconds("unavailable", e.Lasted), zap.Int("failures", e.Failures))
	}
}
