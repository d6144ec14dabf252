package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Waits tells other proxies for which lock an owner waits, or asks that of an owner.
type Waits struct {
	Owner string
	Tell  *Wait         // nil: ask
	TTL   time.Duration // for how long it counts
}

// Wait is for which lock an owner waits. Times are those of its proxy, in µs.
type Wait struct {
	Lock   string
	Shared bool
	Since  int64 // when the command came
	Told   int64 // when it still waited
}

// waitsPrefix is what the keys of waits begin with.
const waitsPrefix = "lockproxy:waits:"

// Call is the call of waits.lua.
func (w Waits) Call() Call {
	c := Call{waits, []string{waitsPrefix + w.Owner}, nil}
	if t := w.Tell; t != nil {
		mode := ModeExclusive
		if t.Shared {
			mode = ModeShared
		}
		c.Args = []string{strings.Join([]string{itoa(t.Since), itoa(t.Told), mode, t.Lock}, " "), millis(w.TTL)}
	}
	return c
}

// DecodeWaits decodes the answer of waits.lua; nil: it is not known that the owner waits.
func DecodeWaits(v resp.Value) (*Wait, error) {
	if v.IsError() {
		return nil, ErrorOf(v)
	}
	f := strings.SplitN(string(v.Str), " ", 4)
	if len(f) < 4 {
		return nil, nil
	}
	since, _ := strconv.ParseInt(f[0], 10, 64)
	told, _ := strconv.ParseInt(f[1], 10, 64)
	return &Wait{Lock: f[3], Shared: f[2] == ModeShared, Since: since, Told: told}, nil
}
