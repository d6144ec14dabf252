package session

import (
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

const limit = 20

// lane and pin are two connections, which send nothing here.
var lane, pin upstream.Connection = &upstream.Lane{}, &upstream.Pin{}

// bench is the output of a client with a limit.
type bench struct {
	output
	*testing.T
	over  []int // what overflow was told
	later int   // how often Judge was asked for
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t}
	b.open(&Proxy{Settings: Settings{Limits: Limits{Output: limit}}}, func(_ metrics.Reason, unread int) { b.over = append(b.over, unread) }, func(time.Duration) { b.later++ })
	return b
}

// engine takes what may leave. The client has not taken it yet.
func (b *bench) engine(want string) {
	b.Helper()
	var got []byte
	for c := b.Outbox.Begin(); c != nil; c = b.Outbox.Begin() {
		got = append(got, c...)
		b.Outbox.End(c, true)
	}
	if string(got) != want {
		b.Errorf("the engine gets %q, want %q", got, want)
	}
}

func (b *bench) unread(want int) {
	b.Helper()
	if b.Unread() != want {
		b.Errorf("%d bytes are unread, want %d", b.Unread(), want)
	}
}

func TestBytesAreUnreadUntilTheClientHasTakenThem(t *testing.T) {
	b := newBench(t)
	first, second := b.Slots.Add(lane, nil, 1), b.Slots.Add(pin, nil, 1)
	b.say([]byte("+3\r\n"))
	b.put(second, []byte("+2\r\n"), false)
	b.Slots.Answer(second, 1)
	b.move()
	b.engine("") // both wait for their turn
	b.unread(8)
	b.put(first, []byte("$1\r\n"), true)
	b.push([]byte(">0\r\n")) // it waits for the end of the reply
	b.engine("$1\r\n")
	b.unread(16)
	b.put(first, []byte("x\r\n"), false)
	b.Slots.Answer(first, 1)
	b.move()
	b.engine("x\r\n>0\r\n+2\r\n+3\r\n")
	b.unread(19)
	b.written(4)
	b.unread(15)
	b.written(15)
	b.emit([]byte("!"))
	b.engine("!")
	b.unread(1)
	if len(b.over) != 0 {
		t.Errorf("overflow at %d bytes", b.over)
	}
}

func TestWaitingBytesCountAgainstTheLimit(t *testing.T) {
	b := newBench(t)
	b.Slots.Add(lane, nil, 1) // it is not answered
	b.say(make([]byte, limit))
	if len(b.over) != 0 {
		t.Errorf("overflow at %d bytes", b.over)
	}
	b.push([]byte("x"))
	b.emit([]byte("y"))
	if !slices.Equal(b.over, []int{limit + 1, limit + 2}) {
		t.Errorf("overflow at %d bytes", b.over)
	}
	b.proxy.SetLimits(Limits{Output: 2 * limit})
	b.emit([]byte("z"))
	if len(b.over) != 2 {
		t.Errorf("overflow at %d bytes, below the new limit", b.over)
	}
	b.forget()
	b.engine("")
	b.unread(0)
}

func TestAClientThatIsGoneGetsNoMore(t *testing.T) {
	b := newBench(t)
	b.emit([]byte("last"))
	at := b.Slots.Add(lane, nil, 1)
	b.finish()
	b.say([]byte("1"))
	b.put(at, []byte("2"), false)
	b.push([]byte("3"))
	b.emit([]byte("4"))
	if b.engine("last"); !b.Gone() {
		t.Error("the client is not gone")
	}
	b.unread(4)
}

// A subscriber may leave more than the soft limit unread for a while, and has the whole time again after it has read.
func TestSubscriberBehindForTooLong(t *testing.T) {
	b := newBench(t)
	b.proxy.SetLimits(Limits{Output: 10 * limit, PubSub: PubSub{Hard: 2 * limit, Soft: limit, SoftTime: time.Second}})
	message := make([]byte, limit+1)
	says := func(at int64, b1 []byte, over ...int) {
		t.Helper()
		b.proxy.Clock.Store(at)
		if b.message(b1); !slices.Equal(b.over, over) {
			t.Fatalf("at %d: over at %v, want %v", at, b.over, over)
		}
	}
	says(0, message)
	says(1000, message[:1])
	b.written(2)
	says(5000, message[:1])
	says(5500, message[:1])
	says(6000, message[:1])
	says(6001, message[:1], limit+4)
	says(6001, message, limit+4, 2*limit+5)
}

// A subscriber that is behind is judged at the end of its time, even if no message comes any more.
func TestSubscriberBehindWithoutMessages(t *testing.T) {
	b := newBench(t)
	b.proxy.SetLimits(Limits{Output: 10 * limit, PubSub: PubSub{Hard: 9 * limit, Soft: limit, SoftTime: time.Second}})
	b.message(make([]byte, limit+1))
	b.message(make([]byte, 1))
	if b.later != 1 {
		t.Fatalf("it is judged later %d times", b.later)
	}
	b.proxy.Clock.Store(2000)
	if b.judge(); !slices.Equal(b.over, []int{limit + 2}) {
		t.Errorf("over at %v", b.over)
	}
	b.written(limit)
	if b.judge(); len(b.over) != 1 {
		t.Errorf("it has read, and is over at %v", b.over)
	}
}
