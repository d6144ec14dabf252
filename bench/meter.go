package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/bench/fleet"
)

// meter measures what a server, the Redis behind it and this program use between two moments.
type meter struct {
	s      *fleet.Server
	from   usage
	asking float64 // allocations of asking for the number of allocations
}

type usage struct {
	at                 time.Time
	proxy, redis, self time.Duration
	mallocs            float64 // negative: not known
}

func newMeter(ctx context.Context, s *fleet.Server) (*meter, error) {
	first, err := allocated(ctx, s)
	if err != nil {
		return nil, err
	}
	second, err := allocated(ctx, s)
	if err != nil {
		return nil, err
	}
	from, err := read(s) // last, so that asking costs the server nothing within the measurement
	from.mallocs = second
	return &meter{s, from, second - first}, err
}

// allocated is the number of objects that a server has allocated so far; negative: not known.
func allocated(ctx context.Context, s *fleet.Server) (float64, error) {
	if s.Metrics == "" {
		return -1, nil
	}
	return mallocs(ctx, s.Metrics)
}

func read(s *fleet.Server) (u usage, err error) {
	if s.Proxy != nil {
		if u.proxy, err = fleet.CPU(s.Proxy.PID()); err != nil {
			return u, err
		}
	}
	for _, p := range append([]*fleet.Process{s.Redis}, s.Others...) {
		spent, err := fleet.CPU(p.PID())
		if err != nil {
			return u, err
		}
		u.redis += spent
	}
	u.self, u.at = fleet.SelfCPU(), time.Now()
	return u, nil
}

// mallocs asks a Go program for the number of objects that it has allocated so far.
func mallocs(ctx context.Context, addr string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("metrics: %w", err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return -1, nil
}

// end sets the cost per operation in µs, the share of a core that the proxy and Redis used in percent, and allocations
// of the proxy per operation if they can be known. It returns the seconds that have passed.
func (m *meter) end(ctx context.Context, values map[string]float64, operations float64) (float64, error) {
	to, err := read(m.s)
	if err != nil {
		return 0, err
	}
	if to.mallocs, err = allocated(ctx, m.s); err != nil {
		return 0, err
	}
	seconds := to.at.Sub(m.from.at).Seconds()
	each := func(key string, spent time.Duration) {
		values[key+"%"] = spent.Seconds() / seconds * 100
		if operations > 0 {
			values[key] = float64(spent) / float64(time.Microsecond) / operations
		}
	}
	if m.s.Proxy != nil {
		each("proxy", to.proxy-m.from.proxy)
	}
	each("redis", to.redis-m.from.redis)
	each("self", to.self-m.from.self)
	if m.from.mallocs >= 0 && operations > 0 {
		values["allocs"] = max(0, to.mallocs-m.from.mallocs-m.asking) / operations
	}
	return seconds, nil
}
