package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockproxy/lockproxy/bench/fleet"
	"github.com/lockproxy/lockproxy/bench/load"
)

const holders = 100 // connections that hold the locks of heldLocks

func heldLocks(n int, lease time.Duration) scenario {
	return scenario{
		name: "watchdog", title: fmt.Sprintf("%d locks held and renewed, lease %v", n, lease), primary: "proxy%", fresh: true, rounds: 1,
		about: fmt.Sprintf("%d clients hold the locks and do nothing. Lateness is how much less than two thirds of its lease a lock has left, by Redis's word, "+
			"asked for 200 random locks ten times a second over %v.", holders, window(lease)),
		columns: []column{
			{"proxy%", "proxy % of a core", "%.2f"},
			{"redis%", "Redis % of a core", "%.2f"},
			{"late99", "lateness p99 ms", "%.1f"},
			{"late", "lateness max ms", "%.1f"},
			{"bytes", "bytes/lock proxy", "%.0f"},
			{"rbytes", "bytes/lock Redis", "%.0f"},
			{"taking", "k locks/s taken", "%.1f"},
		},
		contestants: []string{fleet.Lockproxy}, servers: []string{fleet.Lockproxy}, flags: []string{"--lock-lease", lease.String()},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			return b.holdMany(ctx, f.Servers[who], n, lease)
		},
	}
}

// window is long enough for two renewals of every lock.
func window(lease time.Duration) time.Duration { return lease * 5 / 6 }

// taking is a workload in which each client takes its share of the locks, one after the other.
type taking struct {
	key   func(id int) string
	n     int
	taken int
	fail  func(error)
}

// Start takes the first lock of a client.
func (w *taking) Start(c *load.Conn) { c.Send(load.Command("LOCK", w.key(c.ID)), 0, 0) }

// Reply takes the next one: those of client i are i, i+holders, i+2·holders ...
func (w *taking) Reply(c *load.Conn, r load.Reply) {
	if !load.Positive(r.Head) {
		w.fail(fmt.Errorf("LOCK was answered %s", r.Head))
		return
	}
	w.taken++
	c.Round++
	if next := c.ID + int(c.Round)*holders; next < w.n {
		c.Send(load.Command("LOCK", w.key(next)), 0, 0)
	}
}

func (b *bench) holdMany(ctx context.Context, s *fleet.Server, n int, lease time.Duration) (sample, error) {
	values := map[string]float64{}
	out := sample{values: values}
	before, err := resident(s)
	if err != nil {
		return out, err
	}
	redisBefore, err := fleet.Resident(s.Redis.PID())
	if err != nil {
		return out, err
	}
	l, err := load.NewLoop()
	if err != nil {
		return out, err
	}
	defer l.Close()
	w := &taking{key: keyNames(), n: n, fail: l.Fail}
	began := time.Now()
	if err := l.Dial(s.Addr, holders, w); err != nil {
		return out, err
	}
	if err := l.Run(ctx, runLimit/2, func() bool { return w.taken == n }); err != nil {
		return out, err
	}
	if w.taken < n {
		return out, fmt.Errorf("only %d of %d locks were taken in %v", w.taken, n, runLimit/2)
	}
	values["taking"] = float64(n) / time.Since(began).Seconds() / 1000

	redis, err := fleet.NewClient(s.RedisAddr)
	if err != nil {
		return out, err
	}
	defer redis.Close()
	m, err := newMeter(ctx, s)
	if err != nil {
		return out, err
	}
	late := load.NewHistogram()
	for end := time.Now().Add(window(lease)); time.Now().Before(end); {
		if err := l.Run(ctx, 100*time.Millisecond, nil); err != nil {
			return out, err
		}
		if err := lateness(redis, w.key, n, lease, late); err != nil {
			return out, err
		}
	}
	if _, err := m.end(ctx, values, 0); err != nil {
		return out, err
	}
	values["late99"] = float64(late.ValueAtQuantile(99)) / float64(time.Millisecond)
	values["late"] = float64(late.Max()) / float64(time.Millisecond)
	after, err := resident(s)
	if err != nil {
		return out, err
	}
	redisAfter, err := fleet.Resident(s.Redis.PID())
	values["bytes"] = (after - before) / float64(n)
	values["rbytes"] = (redisAfter - redisBefore) / float64(n)
	return out, err
}

// lateness asks for the rest of some leases.
func lateness(redis *fleet.Client, key func(int) string, n int, lease time.Duration, late *hist) error {
	const asked = 200
	for range asked {
		if err := redis.Send("PTTL", key(rand.IntN(n))); err != nil {
			return err
		}
	}
	for range asked {
		reply, err := redis.Receive()
		if err != nil {
			return err
		}
		ms, err := strconv.Atoi(strings.TrimPrefix(reply, ":"))
		if err != nil {
			return fmt.Errorf("PTTL was answered %s: %w", reply, err)
		}
		if ms < 0 {
			return fmt.Errorf("a lock was lost: PTTL %d", ms)
		}
		_ = late.RecordValue(int64(max(0, lease*2/3-time.Duration(ms)*time.Millisecond)))
	}
	return nil
}

// holdCommand is the argument that makes this program a holder which can be killed.
const holdCommand = "hold-a-lock"

// hold takes a lock, says so, and waits to be killed.
func hold(args []string) error {
	c, err := fleet.NewClient(args[0])
	if err != nil {
		return err
	}
	if _, err := c.Do("LOCK", args[1], "GRACE", "0"); err != nil {
		return err
	}
	if _, err := io.WriteString(os.Stdout, "held\n"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin) // ends with the parent at the latest
	return err
}

func killedHolder(kills int) scenario {
	return scenario{
		name: "kill", title: "From kill -9 of a holder to the next grant", primary: "p50", rounds: 1, plot: "from kill -9 to the grant",
		about: fmt.Sprintf("A process holds a lock with GRACE 0 while another client waits for it; the process is killed, %d times. "+
			"A library leaves the lock to the rest of its lease: up to 30 s by the default of most.", kills),
		columns:     []column{colP50, colP99, colMax},
		contestants: []string{fleet.Lockproxy}, servers: []string{fleet.Lockproxy},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			h := load.NewHistogram()
			out := sample{values: map[string]float64{}, hist: h}
			key := keyNames()
			for i := range kills {
				d, err := killAndWait(ctx, f.Servers[who].Addr, key(i))
				if err != nil {
					return out, err
				}
				_ = h.RecordValue(int64(d))
			}
			histValues(out.values, h)
			return out, nil
		},
	}
}

// killAndWait measures from the death of a holder to the grant of the waiter.
func killAndWait(ctx context.Context, addr, key string) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("holder: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, holdCommand, addr, key)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err := cmd.StdinPipe(); err != nil {
		return 0, fmt.Errorf("holder: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("holder: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("holder: %w", err)
	}
	defer cmd.Wait()         //nolint:errcheck // it has been killed
	defer cmd.Process.Kill() //nolint:errcheck // it may have been killed
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return 0, fmt.Errorf("holder: %q: %w", line, err)
	}
	waiter, err := fleet.NewClient(addr)
	if err != nil {
		return 0, err
	}
	defer waiter.Close()
	if err := waiter.Send("LOCK", key); err != nil {
		return 0, err
	}
	if reply, err := fleet.Do(addr, "LOCK", key, "WAIT", "50"); err != nil || reply != "$-1" { // by then the waiter waits
		return 0, fmt.Errorf("LOCK of a lock that is held was answered %s: %w", reply, err)
	}
	began := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		return 0, fmt.Errorf("kill: %w", err)
	}
	reply, err := waiter.Receive()
	if err != nil {
		return 0, err
	}
	if !load.Positive([]byte(reply)) {
		return 0, fmt.Errorf("LOCK was answered %s", reply)
	}
	return time.Since(began), nil
}
