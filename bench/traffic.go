package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/bench/fleet"
	"github.com/lockproxy/lockproxy/bench/load"
)

const (
	keys     = 10_000 // small values to pick from
	bigKeys  = 4
	bigValue = 1 << 20
)

func smallKey(i int) string { return fmt.Sprintf("key:%012d", i) }
func bigKey(i int) string   { return fmt.Sprintf("big:%d", i) }

func gets(n int, key func(int) string) load.Commands {
	var cs load.Commands
	for i := range n {
		cs = append(cs, load.Command("GET", key(i)))
	}
	return cs
}

func sets(n int, key func(int) string, value string) load.Commands {
	var cs load.Commands
	for i := range n {
		cs = append(cs, load.Command("SET", key(i), value))
	}
	return cs
}

// fill stores the values that the scenarios read.
func fill(f *fleet.Fleet) error {
	c, err := fleet.NewClient(f.Servers[fleet.Direct].Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range keys {
		if err := c.Send("SET", smallKey(i), strings.Repeat("x", 64)); err != nil {
			return err
		}
	}
	for range keys {
		if _, err := c.Receive(); err != nil {
			return err
		}
	}
	for i := range bigKeys {
		if _, err := c.Do("SET", bigKey(i), strings.Repeat("x", bigValue)); err != nil {
			return err
		}
	}
	return nil
}

// trafficScenarios are about ordinary commands.
func trafficScenarios(p plan) []scenario {
	all := []scenario{
		withLimit(closedLoop("get-1", "GET 64 B, 1 client", 1, 1, gets(keys, smallKey))),
		withLimit(closedLoop("set-1", "SET 64 B, 1 client", 1, 1, sets(keys, smallKey, strings.Repeat("x", 64)))),
		withLimit(closedLoop("get-50", "GET 64 B, 50 clients", 50, 1, gets(keys, smallKey))),
		withLimit(closedLoop("set-50", "SET 64 B, 50 clients", 50, 1, sets(keys, smallKey, strings.Repeat("x", 64)))),
		withLimit(closedLoop("get-500", "GET 64 B, 500 clients", 500, 1, gets(keys, smallKey))),
		withLimit(closedLoop("set-500", "SET 64 B, 500 clients", 500, 1, sets(keys, smallKey, strings.Repeat("x", 64)))),
		withLimit(closedLoop("get-50-p16", "GET 64 B, 50 clients, 16 commands at a time", 50, 16, gets(keys, smallKey))),
		withLimit(closedLoop("set-50-p16", "SET 64 B, 50 clients, 16 commands at a time", 50, 16, sets(keys, smallKey, strings.Repeat("x", 64)))),
		benchmark("redis-benchmark-50", "redis-benchmark: GET 64 B, 50 clients", 1),
		benchmark("redis-benchmark-50-p16", "redis-benchmark: GET 64 B, 50 clients, 16 commands at a time", 16),
		bigValues("get-1mb", "GET 1 MB, 4 clients", gets(bigKeys, bigKey)),
		bigValues("set-1mb", "SET 1 MB, 4 clients", sets(bigKeys, bigKey, strings.Repeat("x", bigValue))),
	}
	for _, rate := range p.rates {
		all = append(all, openLoop(rate))
	}
	return append(all, slowReader(), storm(p.storm), helloStorm(p.storm), idle(p.idle))
}

// traffic is what scenarios about ordinary commands have in common.
func traffic(s scenario) scenario {
	s.contestants, s.servers = fleet.Names(), fleet.Names()
	s.bases = []string{fleet.Direct, fleet.Twemproxy, fleet.HAProxy}
	s.prepare = fill
	return s
}

// withLimit adds another proxy, and the pipe, which no proxy with a connection for each client can beat.
func withLimit(s scenario) scenario {
	more := []string{fleet.Envoy, fleet.Pipe}
	s.contestants, s.servers, s.bases = append(s.contestants, more...), append(s.servers, more...), append(s.bases, more...)
	return s
}

func closedLoop(name, title string, clients, depth int, commands load.Commands) scenario {
	return traffic(scenario{
		name: name, title: title, primary: "rate", columns: trafficColumns(), plot: "latency of a reply",
		about: "Each client sends its next commands when it has all replies to the last ones (closed loop).",
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			return b.closed(ctx, f.Servers[who], clients, &load.Closed{Commands: commands, Depth: depth})
		},
	})
}

func bigValues(name, title string, commands load.Commands) scenario {
	s := closedLoop(name, title, 4, 1, commands)
	s.about = "The rate in k/s is also GB/s. Memory is what the proxy has more at the end than before: a value need not be held whole."
	s.columns = append(s.columns, column{"grown", "memory + MiB", "%.1f"})
	return s
}

// closed runs a closed loop.
func (b *bench) closed(ctx context.Context, s *fleet.Server, clients int, w *load.Closed) (sample, error) {
	w.Hist = load.NewHistogram()
	out := sample{values: map[string]float64{}, hist: w.Hist}
	before, err := resident(s)
	if err != nil {
		return out, err
	}
	err = b.drive(ctx, s, clients, w, func(l *load.Loop) (float64, error) {
		w.On = true
		n, err := b.count(ctx, l, w.Hist)
		w.End(l)
		return n, err
	}, out.values)
	if err != nil {
		return out, err
	}
	after, err := resident(s)
	out.values["grown"] = (after - before) / (1 << 20)
	histValues(out.values, w.Hist)
	return out, err
}

// drive connects clients, lets them warm up, and measures while f runs, which returns the number of operations.
func (b *bench) drive(ctx context.Context, s *fleet.Server, clients int, w load.Workload, f func(*load.Loop) (float64, error), values map[string]float64) error {
	l, err := load.NewLoop()
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.Dial(s.Addr, clients, w); err != nil {
		return err
	}
	if err := l.Run(ctx, b.warm(clients), nil); err != nil {
		return err
	}
	m, err := newMeter(ctx, s)
	if err != nil {
		return err
	}
	n, err := f(l)
	if err != nil {
		return err
	}
	seconds, err := m.end(ctx, values, n)
	values["rate"] = n / seconds / 1000
	return err
}

// stallLimit is how long a server may take over its first reply in a measurement before it counts as broken, and not
// slow.
const stallLimit = 20 * time.Second

// count drives l for the planned time, and beyond it until there is something to count in h, and returns how much there
// is.
func (b *bench) count(ctx context.Context, l *load.Loop, h *hist) (float64, error) {
	if err := l.Run(ctx, b.plan.measure, nil); err != nil {
		return 0, err
	}
	if h.TotalCount() == 0 {
		if err := l.Run(ctx, stallLimit, func() bool { return h.TotalCount() > 0 }); err != nil {
			return 0, err
		}
	}
	if h.TotalCount() == 0 {
		return 0, fmt.Errorf("nothing was answered in %v", b.plan.measure+stallLimit)
	}
	return float64(h.TotalCount()), nil
}

// warm is the time before a measurement: longer for many, who may have to queue one after the other.
func (b *bench) warm(clients int) time.Duration {
	return b.plan.warm * time.Duration(1+clients/250)
}

// resident is the memory of the proxy, or of Redis if there is none.
func resident(s *fleet.Server) (float64, error) {
	if s.Proxy == nil {
		return fleet.Resident(s.Redis.PID())
	}
	return fleet.Resident(s.Proxy.PID())
}

func openLoop(rate float64) scenario {
	return traffic(scenario{
		name:  fmt.Sprintf("get-50-open-%.0fk", rate/1000),
		title: fmt.Sprintf("GET 64 B, 50 clients, %.0f commands/s at a constant rate", rate),
		about: "An open loop: commands are sent when they are due, and latency counts from that moment, so that a stall costs all commands that fell into it.",
		plot:  "latency from when the command was due", primary: "p99", columns: trafficColumns(),
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			w := &load.Open{Commands: gets(keys, smallKey)}
			w.Hist = load.NewHistogram()
			out := sample{values: map[string]float64{}, hist: w.Hist}
			paced := &pacedOpen{Open: w}
			err := b.drive(ctx, f.Servers[who], 50, paced, func(l *load.Loop) (float64, error) {
				if err := w.Begin(l, rate); err != nil {
					return 0, err
				}
				w.Record(l)
				n, err := b.count(ctx, l, w.Hist)
				w.End(l)
				return n, err
			}, out.values)
			histValues(out.values, w.Hist)
			return out, err
		},
	})
}

// pacedOpen lets each client send one command at first, so that it is connected and served when the rate begins.
type pacedOpen struct{ *load.Open }

func (w *pacedOpen) Start(c *load.Conn) { c.Send(w.Commands[0], 0, 0) }

func slowReader() scenario {
	return traffic(scenario{
		name: "slow-reader", title: "GET 64 B, 49 clients beside one that reads slowly", primary: "rate",
		about: "One client asks for 64 values of 1 MB at a time and reads 3 MB/s. The others should not notice. Memory is what the proxy (or Redis) has more at the end than before.",
		plot:  "latency of a reply", columns: append(trafficColumns(), column{"grown", "memory + MiB", "%.1f"}),
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- readSlowly(ctx, f.Servers[who].Addr) }()
			out, err := b.closed(ctx, f.Servers[who], 49, &load.Closed{Commands: gets(keys, smallKey), Depth: 1})
			cancel()
			return out, errors.Join(err, <-ended)
		},
	})
}

// readSlowly reads big values at about 3 MB/s until ctx ends.
func readSlowly(ctx context.Context, addr string) error {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return fmt.Errorf("slow reader: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		return fmt.Errorf("slow reader: %w", err)
	}
	var ask []byte
	for range 64 {
		ask = append(ask, load.Command("GET", bigKey(0))...)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	buf := make([]byte, 32<<10)
	for left := 0; ctx.Err() == nil; <-tick.C {
		if left <= 0 {
			left += 64 * bigValue
			if _, err = conn.Write(ask); err != nil {
				break
			}
		}
		n, err := io.ReadFull(conn, buf)
		if left -= n; err != nil && ctx.Err() == nil {
			return fmt.Errorf("slow reader: %w", err)
		}
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("slow reader: %w", err)
	}
	return nil
}

func storm(n int) scenario {
	return stormOf(scenario{
		name: "storm", title: fmt.Sprintf("%d clients connect at once", n),
		about: "All connect and send PING in the same moment; latency is from the beginning of the connection to the reply. Rate is connections by the time that all have their reply.",
	}, n, load.Command("PING"))
}

// helloStorm begins as client libraries do. Twemproxy does not know HELLO.
func helloStorm(n int) scenario {
	s := stormOf(scenario{
		name: "storm-hello", title: fmt.Sprintf("%d clients connect at once and say HELLO 3", n),
		about: "As `storm`, with the first command of a client library. One error reply ends the run.",
	}, n, load.Command("HELLO", "3"))
	isTwemproxy := func(name string) bool { return name == fleet.Twemproxy }
	s.contestants = slices.DeleteFunc(slices.Clone(s.contestants), isTwemproxy)
	s.servers = slices.DeleteFunc(slices.Clone(s.servers), isTwemproxy)
	s.bases = slices.DeleteFunc(slices.Clone(s.bases), isTwemproxy)
	return s
}

// stormOf is a storm of n clients, each with one command.
func stormOf(s scenario, n int, command []byte) scenario {
	s = traffic(scenario{
		name: s.name, title: s.title, about: s.about, primary: "p99",
		plot: "from connecting to the first reply", columns: []column{colRate, colP50, colP99, colMax, colProxy, colRedis},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			s := f.Servers[who]
			w := &load.Once{Command: command}
			w.On, w.Hist = true, load.NewHistogram()
			out := sample{values: map[string]float64{}, hist: w.Hist}
			m, err := newMeter(ctx, s)
			if err != nil {
				return out, err
			}
			l, err := load.NewLoop()
			if err != nil {
				return out, err
			}
			defer l.Close()
			if err := connect(ctx, l, s.Addr, n, w); err != nil {
				return out, err
			}
			seconds, err := m.end(ctx, out.values, float64(n))
			out.values["rate"] = float64(n) / seconds / 1000
			histValues(out.values, w.Hist)
			return out, err
		},
	})
	return s
}

// connectLimit bounds the time for a crowd of clients to have its first replies.
const connectLimit = 20 * time.Second

// connect adds n connections and waits until each has its reply.
func connect(ctx context.Context, l *load.Loop, addr string, n int, w *load.Once) error {
	want := w.Replies + n
	if err := l.Dial(addr, n, w); err != nil {
		return err
	}
	if err := l.Run(ctx, connectLimit, func() bool { return w.Replies == want }); err != nil {
		return err
	}
	if w.Replies < want {
		return fmt.Errorf("%d of %d clients had no reply after %v", want-w.Replies, n, connectLimit)
	}
	return nil
}

func idle(n int) scenario {
	return traffic(scenario{
		name: "idle", title: fmt.Sprintf("%d idle clients", n), primary: "kib", fresh: true, rounds: 3,
		about: "Memory of the proxy (of Redis for direct) per client that has connected and sent one PING, 2 s later. A client of HAProxy takes two of its files, so it may get fewer.",
		columns: []column{
			{"kib", "KiB per client", "%.2f"}, {"clients", "clients", "%.0f"}, {"start", "MiB before", "%.1f"}, {"rest", "% of a core, idle", "%.2f"},
		},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			s, n := f.Servers[who], n
			out := sample{values: map[string]float64{}}
			if who == fleet.HAProxy {
				n = min(n, (b.plan.fileLimit-256)/2-16)
			}
			n = min(n, b.plan.fileLimit-256)
			before, err := resident(s)
			if err != nil {
				return out, err
			}
			l, err := load.NewLoop()
			if err != nil {
				return out, err
			}
			defer l.Close()
			w := &load.Once{Command: load.Command("PING")}
			const atOnce = 250
			for done := 0; done < n; done += atOnce {
				if err := connect(ctx, l, s.Addr, min(atOnce, n-done), w); err != nil {
					return out, err
				}
			}
			m, err := newMeter(ctx, s)
			if err != nil {
				return out, err
			}
			if err := l.Run(ctx, 2*time.Second, nil); err != nil {
				return out, err
			}
			if _, err := m.end(ctx, out.values, 0); err != nil {
				return out, err
			}
			after, err := resident(s)
			out.values["kib"] = (after - before) / 1024 / float64(n)
			out.values["clients"] = float64(n)
			out.values["start"] = before / (1 << 20)
			out.values["rest"] = out.values["proxy%"]
			if s.Proxy == nil {
				out.values["rest"] = out.values["redis%"]
			}
			return out, err
		},
	})
}
