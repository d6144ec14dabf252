package proxy

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// info is the section lockproxy of INFO, in Redis's shape for that version of the protocol.
func (e *env) info(proto int) []byte {
	var b strings.Builder
	text := func(name, v string) { b.WriteString(name + ":" + v + "\r\n") }
	number := func(name string, v int64) { text(name, strconv.FormatInt(v, 10)) }

	b.WriteString("# Lockproxy\r\n")
	text("lockproxy_version", e.opts.Version)
	text("lockproxy_uuid", e.opts.uuid)
	number("process_id", int64(os.Getpid()))
	number("uptime_in_seconds", int64(time.Since(e.started).Seconds()))
	up := "up"
	if ready, _ := e.upstream.Ready(); !ready {
		up = "down"
	}
	text("upstream", up)
	number("connected_clients", e.stats.clients.Load())
	number("total_connections_received", e.stats.accepted.Load())
	number("rejected_connections", e.stats.rejected.Load())
	open, idle := e.upstream.Pins()
	number("pins_open", int64(open))
	number("pins_idle", int64(idle))
	text("pins_by_reason", e.pinReasons.String())
	number("pin_waits", e.stats.pinWaits.Load())
	number("pin_timeouts", e.stats.pinTimeouts.Load())
	number("commands_refused_no_upstream", e.stats.refused.Load())
	number("clients_closed_no_handshake", e.stats.handshakes.Load())
	number("clients_closed_no_first_command", e.stats.firstTimeouts.Load())
	number("clients_closed_protocol_error", e.stats.protocolErrors.Load())
	number("clients_closed_query_limit", e.stats.queryLimit.Load())
	number("clients_closed_output_limit", e.stats.outputLimit.Load())
	number("locks_lost", e.stats.lost.Load())
	number("session_panics", e.stats.panics.Load())

	if proto < 3 {
		return appendText(nil, b.String())
	}
	reply := appendHeader(nil, '=', len("txt:")+b.Len())
	return append(append(append(reply, "txt:"...), b.String()...), '\r', '\n')
}

// pinReasons counts the pins that sessions have, by the command that made each necessary.
type pinReasons struct {
	mu    sync.Mutex
	count map[string]int
}

func (r *pinReasons) add(reason string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = map[string]int{}
	}
	if r.count[reason] += n; r.count[reason] == 0 {
		delete(r.count, reason)
	}
}

// String lists the reasons that there are, "blpop=1,multi=2".
func (r *pinReasons) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(r.count)) {
		parts = append(parts, reason+"="+strconv.Itoa(r.count[reason]))
	}
	return strings.Join(parts, ",")
}
