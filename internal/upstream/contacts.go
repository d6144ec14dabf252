package upstream

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// redisContacts knows whether Redis was available at the last contact, and logs outages. Its methods may be called from
// any goroutine.
//
// An outage has one entry at its begin, one for each minute that it lasts or when its cause changes, and one at its
// end, however many connections fail meanwhile.
type redisContacts struct {
	// Entries is the log for entries that each connection may repeat.
	Entries *logging.Repeats

	addr zap.Field

	mu            sync.Mutex
	ready         bool      // the last contact with Redis was successful
	err           error     // why not
	since, logged time.Time // of the outage; zero: Redis is available, as far as is known
	cause         string    // of the outage, in words from a small set
	failures      int       // since it began
}

const (
	// entriesMost is the number of entries of one kind that the log has in a period; the others become a summary.
	entriesMost, entriesPeriod = 5, 10 * time.Second

	// outagePeriod is the time between two entries about an outage that goes on.
	outagePeriod = time.Minute
)

// newRedisContacts is for the Redis at an address.
func newRedisContacts(addr string, log *zap.Logger) *redisContacts {
	return &redisContacts{addr: zap.String("addr", addr), Entries: logging.NewRepeats(log, entriesMost, entriesPeriod)}
}

// Ready reports whether Redis was reachable at the last contact, and if not why.
func (c *redisContacts) Ready() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready, c.err
}

// Outage is why Redis was not reachable at the last contact, and since when; nil: it was, or there was no contact.
func (c *redisContacts) Outage() (since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.err
}

// Note notes the outcome of a contact with Redis, and logs what it means to the operator. Requires no locks.
func (c *redisContacts) Note(err error) {
	now := time.Now()
	c.mu.Lock()
	c.ready, c.err = err == nil, err
	away := !c.since.IsZero()
	if err != nil {
		c.failures++
		if !away {
			c.since = now
		}
	}
	fields := []zap.Field{
		c.addr, zap.Error(err), logging.Seconds("unavailable", now.Sub(c.since)), zap.Int("failures", c.failures),
	}
	level, text := zap.InfoLevel, ""
	switch cause := dial.Cause(err); {
	case err == nil && away:
		text = "upstream is available again"
		c.since, c.cause, c.failures = time.Time{}, "", 0
	case err == nil:
	case cause != c.cause, now.Sub(c.logged) >= outagePeriod:
		c.cause, c.logged = cause, now
		level, text = zap.WarnLevel, cause
		if dial.IsLasting(err) { // the configuration is wrong
			level = zap.ErrorLevel
		}
	}
	c.mu.Unlock()
	if text != "" {
		c.Entries.Write(level, text, "", fields...)
	}
}
