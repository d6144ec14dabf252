package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// process is what a table says of the proxy itself.
type process struct {
	Version  string  `json:"version"`
	UUID     string  `json:"uuid"`
	Uptime   float64 `json:"uptime_seconds"`
	Upstream bool    `json:"upstream_up"`
	Draining bool    `json:"draining"`
	Token    string  `json:"token,omitempty"` // to be sent with the end of a lock; empty: locks cannot be ended here
}

func (s *Server) process() process {
	n := s.proxy.Stats()
	return process{n.Version, n.UUID, n.Uptime.Seconds(), n.UpstreamUp, s.proxy.Draining(), s.token}
}

// locks answers with a table of locks.
func (s *Server) locks(w http.ResponseWriter, r *http.Request) {
	queryTable(s, w, r, parseLocks, func(q Query) Locks {
		ctx, cancel := context.WithTimeout(s.life, holderLimit)
		defer cancel()
		found := s.view.FindLocks(ctx, q)
		found.process = s.process()
		return found
	})
}

// clients answers with a table of clients.
func (s *Server) clients(w http.ResponseWriter, r *http.Request) {
	queryTable(s, w, r, parseClients, func(q Query) Clients {
		found := s.view.FindClients(q)
		found.process = s.process()
		return found
	})
}

func queryTable[T any](s *Server, w http.ResponseWriter, r *http.Request, parse func(url.Values) (Query, error), find func(Query) T) {
	q, err := parse(r.URL.Query())
	if err != nil {
		reply(w, http.StatusBadRequest, err.Error())
		return
	}
	found, ok := Ask(s.tables, tableLimit, func() T { return find(q) })
	if !ok {
		reply(w, http.StatusServiceUnavailable, "the proxy has not answered in time")
		return
	}
	document(w, found)
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
