package locks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mono is the machine's one monotonic clock, in nanoseconds, the same in all processes.
func mono() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // no such clock: nothing here can be measured
	}
	return ts.Nano()
}

// outcome is what a lock command came to, as far as its client can know.
type outcome string

const (
	unknown   outcome = ""         // no reply: it may have happened, or happen yet
	acquired  outcome = "acquired" // with a fence
	busy      outcome = "busy"     // null
	released  outcome = "released" // UNLOCK 1
	still     outcome = "still"    // UNLOCK 0
	extended  outcome = "extended"
	mine      outcome = "mine"      // LOCKINFO names the caller's own grant
	others    outcome = "others"    // it does not
	notHeld   outcome = "notheld"   // -NOTHELD or -LOSTLEASE
	notSynced outcome = "notsynced" // -NOTSYNCED: granted and given back
	deadlock  outcome = "deadlock"  // -DEADLOCK: nothing happened
	refused   outcome = "refused"   // certainly nothing happened
	strange   outcome = "strange"   // a reply that must not be
)

// op is one lock command in the history of a worker. Lengths of time are in nanoseconds, as in the stamps.
type op struct {
	Worker string // process
	N      int    // counts the commands of the process; one after the other
	Proxy  int
	Verb   string
	Key    string
	Kind   kind
	Limit  int    // of LIMIT: how many may hold the lock
	Owner  string // explicit, or a name for the session's own
	Named  bool   // OWNER was given
	Lease  int64  // of an acquire or extension: the least it can be
	Fixed  bool   // PX or MAXHOLD was given: it ends by itself
	Wait   int64  // negative: without a limit
	Sync   int    // replicas that must have the grant
	Graced bool   // the end of the connection shortens the lease
	Call   int64
	Return int64 // 0 while unknown
	Out    outcome
	Fence  int64
	Text   string // of an error
	Heard  int64  // of an op whose connection was lost: when the connection last gave a sign of life
}

func (o op) String() string {
	s := fmt.Sprintf("%s/%d p%d %s %s owner=%s", o.Worker, o.N, o.Proxy+1, o.Verb, strings.Join(append([]string{o.Key}, o.kindArgs()...), " "), o.Owner)
	if o.Lease > 0 {
		s += fmt.Sprintf(" lease=%v fixed=%v graced=%v", time.Duration(o.Lease), o.Fixed, o.Graced)
	}
	if o.Sync > 0 {
		s += fmt.Sprintf(" sync=%d", o.Sync)
	}
	return s + fmt.Sprintf(" [%.3f, %.3f] %s %d %s", seconds(o.Call), seconds(o.Return), o.Out, o.Fence, o.Text)
}

// seconds makes stamps comparable with those of the fault log.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// kind is the option that says how a lock is held.
type kind string

const (
	exclusive kind = ""
	shared    kind = "SHARED"
	limited   kind = "LIMIT"
)

// kindArgs are those of an acquire.
func (o op) kindArgs() []string {
	switch o.Kind {
	case shared:
		return []string{string(shared)}
	case limited:
		return []string{string(limited), strconv.Itoa(o.Limit)}
	default:
		return nil
	}
}

// hold names what a command is about: an owner has one hold of each kind, and by each grant a permit.
func (o op) hold() string {
	if o.Kind == limited {
		return o.Owner + " " + strconv.FormatInt(o.Fence, 10)
	}
	return o.Owner + " " + string(o.Kind)
}

// most is how many holds of its kind there may be when an acquire has been granted.
func (o op) most() int {
	switch o.Kind {
	case shared:
		return math.MaxInt
	case limited:
		return o.Limit
	default:
		return 1
	}
}

// apart reports whether two grants are never beside each other, whatever their number and their owners.
func (o op) apart(other op) bool { return o.Kind != other.Kind }

func (o op) acquire() bool { return o.Verb == "LOCK" || o.Verb == "TRYLOCK" || o.Verb == "FAIRLOCK" }

// journal is the history of one worker process in a file. Each command is written twice, before it is sent and after
// its reply, so that nothing is forgotten when the process is killed: the page cache outlives it.
type journal struct{ file *os.File }

func (j journal) put(o op) {
	line, err := json.Marshal(o)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "journal:", err)
		os.Exit(3) // a history with gaps proves nothing
	}
}

// readJournal returns the commands of a file in their order; of a command that was written twice, the latter. The last
// line may be cut off if the process was killed while it wrote.
func readJournal(path string) ([]op, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var ops []op
	rd := bufio.NewReader(file)
	for {
		line, err := rd.ReadBytes('\n')
		if err != nil {
			return ops, nil //nolint:nilerror // the end, or a line that was not finished
		}
		var o op
		if err := json.Unmarshal(line, &o); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if n := len(ops); n > 0 && ops[n-1].N == o.N {
			ops[n-1] = o
			continue
		}
		ops = append(ops, o)
	}
}
