package admin

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
)

// collector turns a snapshot of the proxy's numbers into metrics, once for each scrape. If the proxy does not answer,
// it shows those of the scrape before.
type collector struct {
	flight singleFlight         // immutable, as the next one
	stats  func() metrics.Stats // of the proxy

	mu     sync.Mutex // guards the fields below
	latest metrics.Stats
	at     time.Time
}

// numbers are the latest numbers, and their age.
func (c *collector) numbers() (s metrics.Stats, old time.Duration) {
	s, ok := Ask(c.flight, answerLimit, c.stats)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		c.latest, c.at = s, time.Now()
		return s, 0
	}
	return c.latest, time.Since(c.at)
}

func desc(name, help, label string) *prometheus.Desc {
	var labels []string
	if label != "" {
		labels = strings.Split(label, ",")
	}
	return prometheus.NewDesc("lockproxy_"+name, help, labels, nil)
}

var age = desc("stats_age_seconds", "The age of the numbers shown here: 0, or more if the proxy does not answer.", "")

// described has the description of each row of metrics.Table; nil: the row is no metric.
var described = sync.OnceValue(func() []*prometheus.Desc {
	all := make([]*prometheus.Desc, len(metrics.Table))
	for i, row := range metrics.Table {
		if row.Metric != "" {
			all[i] = desc(row.Metric, row.Help, row.Label)
		}
	}
	return all
})

// Describe implements prometheus.Collector.
func (*collector) Describe(out chan<- *prometheus.Desc) {
	out <- age
	for _, d := range described() {
		if d != nil {
			out <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s, old := c.numbers()
	out <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, old.Seconds())
	all := described()
	for i, row := range metrics.Table {
		d := all[i]
		if d == nil {
			continue
		}
		kind := prometheus.GaugeValue
		if row.IsCounter() {
			kind = prometheus.CounterValue
		}
		switch {
		case row.Waits != nil:
			for label, w := range row.Waits(&s) {
				buckets := make(map[float64]uint64, len(w.Buckets))
				for bound, n := range w.Buckets {
					buckets[bound.Seconds()] = n
				}
				out <- prometheus.MustNewConstHistogram(d, w.Count, w.Sum.Seconds(), buckets, label)
			}
		case row.Values != nil:
			out <- prometheus.MustNewConstMetric(d, kind, 1, row.Values(&s)...)
		case row.ByLabel != nil:
			for label, n := range row.ByLabel(&s) {
				out <- prometheus.MustNewConstMetric(d, kind, float64(n), strings.ReplaceAll(label, "-", "_"))
			}
		case row.Label != "":
			out <- prometheus.MustNewConstMetric(d, kind, float64(row.Number(&s)), row.Value)
		default:
			n := float64(row.Number(&s))
			if row.Scale != 0 {
				n *= row.Scale
			}
			out <- prometheus.MustNewConstMetric(d, kind, n)
		}
	}
}

var _ prometheus.Collector = &collector{}
