package admin

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/status"
)

// state is the answer of /status. Durations are in seconds.
type state struct {
	At       time.Time `json:"at"`
	Age      float64   `json:"age_seconds"` // of the numbers: 0, or more if the proxy does not answer
	Version  string    `json:"version"`
	UUID     string    `json:"uuid"`
	Uptime   float64   `json:"uptime_seconds"`
	Upstream bool      `json:"upstream_up"`
	Draining bool      `json:"draining"`

	ForceUnlock bool   `json:"force_unlock"`    // it is enabled
	Token       string `json:"token,omitempty"` // to be sent with it

	Clients    int64            `json:"clients"`
	Held       int              `json:"locks_held"`
	Waiters    int              `json:"lock_waiters"`
	OldestWait float64          `json:"oldest_wait_seconds"` // -1: no client waits
	Memory     int64            `json:"memory_bytes"`
	MaxMemory  int64            `json:"memory_limit_bytes"`
	PinsUsed   int              `json:"pins_used"`
	PinsIdle   int              `json:"pins_idle"`
	Pins       []pinReason      `json:"pins"`
	Lanes      []lane           `json:"lanes"`
	Limits     map[string]int64 `json:"limits"`

	Period float64              `json:"period_seconds"` // between two values of a line
	Lines  map[string][]float64 `json:"lines"`          // of the last minutes, the oldest value first
}

// pinReason is the pins in use because of one command.
type pinReason struct {
	Command string `json:"command"`
	Pins    int64  `json:"pins"`
}

// lane is one shared connection to Redis.
type lane struct {
	Identity string `json:"identity"`
	Server   string `json:"server,omitempty"`
	Use      string `json:"use"`
	Up       bool   `json:"up"`
	Clients  int    `json:"clients"`
	Commands int64  `json:"commands"`
	Bytes    int64  `json:"bytes"`
}

// overview is what the proxy says of itself.
type overview struct {
	stats    status.Stats
	draining bool
	lanes    []proxy.LaneStatus
}

// look takes locks of the proxy.
func (s *Server) look() overview {
	return overview{s.proxy.Stats(), s.proxy.Draining(), s.proxy.Lanes()}
}

// state answers with the numbers of the page. If the proxy does not answer, they are old.
func (s *Server) state(w http.ResponseWriter, _ *http.Request) {
	o, at, fresh := s.overview.Get(answerLimit)
	if at.IsZero() {
		s.late(w)
		return
	}
	n := &o.stats
	out := state{
		At: at, Version: n.Version, UUID: n.UUID, Uptime: n.Uptime.Seconds(), Upstream: n.UpstreamUp, Draining: o.draining,
		ForceUnlock: s.token != "", Token: s.token,
		Clients: n.Clients, Held: n.Held, Waiters: n.Waiting, OldestWait: n.OldestWait.Seconds(), Memory: n.Memory, MaxMemory: n.MaxMemory,
		PinsUsed: n.PinsOpen - n.PinsIdle, PinsIdle: n.PinsIdle, Limits: n.Limits, Pins: []pinReason{}, Lanes: []lane{},
		Period: Period.Seconds(), Lines: s.trend.Lines(),
	}
	if !fresh {
		out.Age = time.Since(at).Seconds()
	}
	for _, command := range slices.Sorted(maps.Keys(n.PinReasons)) {
		out.Pins = append(out.Pins, pinReason{command, n.PinReasons[command]})
	}
	for _, l := range o.lanes {
		out.Lanes = append(out.Lanes, lane(l))
	}
	document(w, out)
}

// locks answers with a table of locks.
func (s *Server) locks(w http.ResponseWriter, r *http.Request) {
	queryTable(s, w, r, ParseLocks, func(q Query) Locks {
		ctx, cancel := context.WithTimeout(s.life, holderLimit)
		defer cancel()
		return s.view.FindLocks(ctx, q)
	})
}

// clients answers with a table of clients.
func (s *Server) clients(w http.ResponseWriter, r *http.Request) {
	queryTable(s, w, r, ParseClients, s.view.FindClients)
}

func queryTable[T any](s *Server, w http.ResponseWriter, r *http.Request, parse func(url.Values) (Query, error), find func(Query) T) {
	q, err := parse(r.URL.Query())
	if err != nil {
		reply(w, http.StatusBadRequest, err.Error())
		return
	}
	found, ok := Ask(s.tables, tableLimit, func() T { return find(q) })
	if !ok {
		s.late(w)
		return
	}
	document(w, found)
}

func (s *Server) late(w http.ResponseWriter) {
	reply(w, http.StatusServiceUnavailable, "the proxy has not answered in time")
}

// document answers with JSON.
func document(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(true)
	_ = encoder.Encode(v) // the client may be gone
}

// remember samples the numbers for the lines of the page until s.life ends.
func (s *Server) remember() {
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		if numbers, at, fresh := s.stats.Get(answerLimit); fresh {
			s.trend.Add(at, &numbers)
		}
		select {
		case <-ticker.C:
		case <-s.life.Done():
			return
		}
	}
}
