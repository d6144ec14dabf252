package locks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"
)

// incident is one fault that was done, from its first to its last moment.
type incident struct {
	what     string
	from, to int64
	harmless bool // to all but the worker it befell: nothing stood still
	gentle   bool // nobody may notice it but by its time
}

func (i incident) String() string {
	return fmt.Sprintf("[%.3f, %.3f] %s", seconds(i.from), seconds(i.to), i.what)
}

// fault is one kind of trouble. It is begun, and ended by the function it returns after a random time up to most.
type fault struct {
	name     string
	most     time.Duration
	harmless bool
	gentle   bool // see incident
	begin    func(s *stand) (what string, end func())
}

// faults are those of an experiment. Those of servers with replicas take their time: two short ones are beside them.
func (s *stand) faults() []fault {
	if s.shards == nil && s.pair == nil {
		return append(ofProcesses(s.lease), ofRedis(s.lease)...)
	}
	few := ofProcesses(time.Second)
	s.rng.Shuffle(len(few), func(i, j int) { few[i], few[j] = few[j], few[i] })
	if s.pair != nil {
		return append(s.pair.faults(), few[:2]...)
	}
	return append(s.shards.faults(), few[:2]...)
}

// ofProcesses are the faults that concern neither Redis nor the way to it. Stops and cuts last long enough for leases to
// run out, and short enough for a live fair waiter not to count as dead.
func ofProcesses(lease time.Duration) []fault {
	long := 5 * lease / 2
	return []fault{
		{name: "kill a worker", most: lease / 2, harmless: true, begin: func(s *stand) (string, func()) {
			i := s.rng.IntN(len(s.workers))
			s.workers[i].Kill()
			return s.names[i], func() { s.startWorker(i) }
		}},
		{name: "stop a worker", most: long, harmless: true, begin: func(s *stand) (string, func()) {
			i := s.rng.IntN(len(s.workers))
			w := s.workers[i]
			w.Signal(syscall.SIGSTOP)
			return s.names[i], func() { w.Signal(syscall.SIGCONT) }
		}},
		{name: "kill a proxy", most: lease, begin: func(s *stand) (string, func()) {
			p := s.anyProxy()
			p.Kill()
			return p.name, func() { s.restart(p) }
		}},
		{name: "stop a proxy", most: long, begin: func(s *stand) (string, func()) {
			p := s.anyProxy()
			p.Signal(syscall.SIGSTOP)
			return p.name, func() { p.Signal(syscall.SIGCONT) }
		}},
		{name: "drain a proxy", most: lease, begin: func(s *stand) (string, func()) {
			p := s.anyProxy()
			for began := mono(); !p.answers() && mono()-began < int64(reconnect); {
				s.wait(20 * time.Millisecond) // it may just have been started, and not know of signals yet
			}
			p.Signal(syscall.SIGTERM)
			return p.name, func() {
				if code := p.Exit(s.t, patience); code != 0 {
					s.fail("exit", "a drained proxy ended with code %d", code)
				}
				s.restart(p)
			}
		}},
	}
}

func ofRedis(lease time.Duration) []fault {
	long := 5 * lease / 2
	return []fault{
		{name: "kill redis", most: lease / 2, begin: func(s *stand) (string, func()) {
			s.redis.Kill()
			return "", func() { s.redis.Restart() }
		}},
		{name: "stop redis", most: long, begin: func(s *stand) (string, func()) {
			s.redis.Pause()
			return "", s.redis.Continue
		}},
		{name: "cut", most: 4 * lease, begin: func(s *stand) (string, func()) { // half of them one way
			p := pairs[s.rng.IntN(len(pairs))]
			if s.rng.IntN(2) == 0 {
				p[0], p[1] = p[1], p[0]
			}
			s.net.cut(p[0], p[1])
			if s.rng.IntN(2) == 0 {
				return fmt.Sprint(p[0], " to ", p[1]), s.net.heal
			}
			s.net.cut(p[1], p[0])
			return fmt.Sprint(p[0], " from ", p[1]), s.net.heal
		}},
		{name: "kill subscriptions", harmless: true, begin: func(s *stand) (string, func()) {
			s.tell("CLIENT", "KILL", "TYPE", "pubsub")
			return "", func() {}
		}},
		{name: "kill connections to redis", begin: func(s *stand) (string, func()) {
			s.tell("CLIENT", "KILL", "TYPE", "normal")
			return "", func() {}
		}},
	}
}

// tell sends an administrative command to Redis; the connection it goes over may be among those it kills.
func (s *stand) tell(args ...any) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = s.admin.Do(ctx, args...).Err()
}

// inject does one fault after the other until d has passed, all kinds in random order, and again. Between them there is time to recover, or none.
func (s *stand) inject(d time.Duration, kinds []fault) {
	var deck []fault
	for end := time.Now().Add(d); time.Now().Before(end); {
		if len(deck) == 0 {
			deck = slices.Clone(kinds)
			s.rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		f := deck[0]
		deck = deck[1:]
		in := incident{what: f.name, from: mono(), harmless: f.harmless || f.gentle, gentle: f.gentle}
		what, undo := f.begin(s)
		in.what = strings.TrimSpace(in.what + " " + what)
		if f.most > 0 {
			s.wait(f.most/10 + upTo(s.rng, f.most*9/10))
		}
		undo()
		in.to = mono()
		s.incidents = append(s.incidents, in)
		s.wait(upTo(s.rng, time.Second))
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// wait passes the time of a fault.
func (s *stand) wait(d time.Duration) { time.Sleep(d) }

// calm reports whether no fault was being done, or had just been done, at any moment of the interval.
func (s *stand) calm(from, to int64) bool {
	const aftermath = 4 * time.Second
	for _, in := range s.incidents {
		if !in.gentle && in.from <= to && from <= in.to+int64(aftermath) {
			return false
		}
	}
	for _, in := range s.stalls.all() {
		if in.from <= to && from <= in.to+int64(late) {
			return false
		}
	}
	return true
}
