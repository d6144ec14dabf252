package admin

import (
	"time"

	"lockproxy/internal/proxy/status"

	"github.com/prometheus/client_golang/prometheus"
)

// collector turns a snapshot of the proxy's counters into metrics, once for each scrape.
type collector struct{ stats *recent[status.Stats] }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("lockproxy_"+name, help, labels, nil)
}

// The metrics. Every label's values are from a closed set: reasons, error codes, verbs, and the names of Redis's commands.
var (
	buildInfo     = desc("build_info", "1, labelled with the version.", "version")
	age           = desc("stats_age_seconds", "0, or, if the proxy does not answer, how old what is shown here is.")
	upstreamUp    = desc("upstream_up", "1 if Redis was there when it was last heard of.")
	clients       = desc("clients", "Client connections.")
	accepted      = desc("connections_total", "Client connections accepted.")
	clientsClosed = desc("clients_closed_total", "Client connections closed by the proxy, by reason.", "reason")
	memory        = desc("clients_memory_bytes", "Memory of the buffers of all clients together.")
	maxMemory     = desc("clients_memory_limit_bytes", "What it is limited to.")
	refused       = desc("commands_refused_total", "Commands that were not sent to Redis, by error code.", "code")
	lanes         = desc("lanes", "Connections to Redis that clients share.")
	lanesAside    = desc("lanes_set_aside_total", "Times that a lane stood still and others went on without it.")
	pins          = desc("pins", "Connections to Redis that single clients have for themselves, or had (idle).", "state")
	logins        = desc("login_connections", "Connections to Redis on which it judges logins.", "state")
	pinReasons    = desc("pins_by_command", "Pins in use, by the command that made each necessary.", "command")
	pinWaits      = desc("pin_waits_total", "Commands that had to wait for a pin.")
	pinTimeouts   = desc("pin_timeouts_total", "Commands that waited for a pin and got none.")
	loginsFailed  = desc("logins_failed_total", "Logins that Redis refused.")
	locksHeld     = desc("locks_held", "Locks held by clients of this proxy.")
	lockWaiters   = desc("lock_waiters", "Clients that wait for locks.")
	lockWaits     = desc("lock_wait_seconds", "From the request to the grant, of locks that were granted.", "verb")
	handovers     = desc("lock_handovers_total", "Grants in the same step as a release.")
	attempts      = desc("lock_attempts_total", "Attempts for clients that wait for locks.")
	lost          = desc("locks_lost_total", "Locks lost by clients of this proxy, by reason.", "reason")
	repaired      = desc("fence_counter_repairs_total", "Times the fence counter held what cannot be a fence and was set to Redis's time.")
)

// Describe is prometheus.Collector.
func (collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		age,
		buildInfo, upstreamUp, clients, accepted, clientsClosed, memory, maxMemory, refused, lanes, lanesAside, pins, logins, pinReasons, pinWaits, pinTimeouts, loginsFailed,
		locksHeld, lockWaiters, lockWaits, handovers, attempts, lost, repaired,
	} {
		out <- d
	}
}

// Collect is prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s, at, fresh := c.stats.get(answerLimit)
	old := 0.0
	if !fresh {
		old = time.Since(at).Seconds()
	}
	out <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, old)
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	counters := func(d *prometheus.Desc, by map[string]int64) {
		for label, v := range by {
			counter(d, v, label)
		}
	}
	gauge(buildInfo, 1, s.Version)
	up := 0
	if s.UpstreamUp {
		up = 1
	}
	gauge(upstreamUp, up)
	gauge(clients, int(s.Clients))
	counter(accepted, s.Accepted)
	counters(clientsClosed, s.Closed)
	gauge(memory, int(s.Memory))
	gauge(maxMemory, int(s.MaxMemory))
	counters(refused, s.Refused)
	gauge(lanes, s.Lanes)
	counter(lanesAside, s.LanesSetAside)
	gauge(pins, s.PinsOpen-s.PinsIdle, "used")
	gauge(pins, s.PinsIdle, "idle")
	gauge(logins, s.LoginsOpen-s.LoginsIdle, "used")
	gauge(logins, s.LoginsIdle, "idle")
	for command, n := range s.PinReasons {
		gauge(pinReasons, n, command)
	}
	counter(pinWaits, s.PinWaits)
	counter(pinTimeouts, s.PinTimeouts)
	counter(loginsFailed, s.LoginsFailed)
	gauge(locksHeld, s.Held)
	gauge(lockWaiters, s.Waiting)
	for verb, w := range s.Waits {
		buckets := make(map[float64]uint64, len(w.Buckets))
		for bound, n := range w.Buckets {
			buckets[bound.Seconds()] = n
		}
		out <- prometheus.MustNewConstHistogram(lockWaits, w.Count, w.Sum.Seconds(), buckets, verb)
	}
	counter(handovers, s.HandedOver)
	counter(attempts, s.Attempts)
	counters(lost, s.Lost)
	counter(repaired, s.FencesRepaired)
}

var _ prometheus.Collector = collector{}
