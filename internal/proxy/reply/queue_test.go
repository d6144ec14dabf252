package reply_test

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
)

// queue answers for connections and handlers that are known by names.
type queue struct {
	reply.Queue[string]
	out strings.Builder
}

// named is a handler; the empty name stands for none.
type named string

func (named) Take(_ reply.ID, _ []byte, n int, _ bool) int { return n }
func (named) Lost(reply.ID, int, bool)                     {}

func (q *queue) Add(from string, handler named, n int) reply.ID {
	if handler == "" {
		return q.Queue.Add(from, nil, n)
	}
	return q.Queue.Add(from, handler, n)
}

func (q *queue) First(from string) (id reply.ID, handler named, ok bool) {
	id, h, ok := q.Queue.First(from)
	handler, _ = h.(named)
	return id, handler, ok
}

// send is what a session does with bytes whose turn it is.
func (q *queue) send(now bool, b string) {
	if now {
		q.out.WriteString(b)
	}
}

// put is a part of a reply, or of n whole replies.
func (q *queue) put(id reply.ID, b string, n int, more bool) {
	q.send(q.Put(id, []byte(b), more), b)
	q.Answer(id, n)
	q.drain()
}

func (q *queue) say(b string) { q.send(q.Say([]byte(b)), b); q.drain() }

func (q *queue) push(b string) { q.send(q.Push([]byte(b)), b) }

func (q *queue) drain() {
	for b := q.Next(); b != nil; b = q.Next() {
		q.out.Write(b)
	}
}

// These are not in the model below.
func TestSlotsThatAreSharedOverOrDropped(t *testing.T) {
	for name, test := range map[string]struct {
		play func(q *queue)
		want string
		due  int
	}{
		"a pipeline is one slot": {func(q *queue) {
			id := q.Add("lane", "", 1)
			q.Add("lane", "", 2)
			q.put(id, "a b ", 2, true)
			q.put(id, "c", 1, false)
		}, "a b c", 0},
		"an answer that comes too late finds no slot": {func(q *queue) {
			id := q.Add("a", "", 1)
			q.put(id, "one", 1, false)
			q.put(id, "two", 1, false)
		}, "one", 0},
		"bytes that were dropped are gone, replies are still due": {func(q *queue) {
			a, b := q.Add("a", "", 1), q.Add("b", "", 1)
			q.put(b, "second", 1, false)
			q.Forget()
			q.Answer(a, 0)
			q.drain()
		}, "", 1},
		"dropped replies of the proxy itself are not due any more": {func(q *queue) {
			held := q.Hold()
			q.say("said")
			q.Forget()
			if q.Answer(held, 1) {
				panic("a slot that was dropped has been answered")
			}
			q.drain()
		}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var q queue
			test.play(&q)
			if got := q.out.String(); got != test.want {
				t.Errorf("the client gets %q, want %q", got, test.want)
			}
			if q.Due() != test.due || q.Slots() > 0 != (test.due > 0) {
				t.Errorf("%d replies due in %d slots, want %d", q.Due(), q.Slots(), test.due)
			}
		})
	}
}

func TestMoreRepliesThanCommandsAreABug(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var q queue
	q.Answer(q.Add("a", "", 1), 2)
}

// command is what the model knows of one command: what the client has to see, and of that what has come.
type command struct {
	id       reply.ID
	from     string
	handler  named
	reply    string
	came     int // bytes of the reply
	answered bool
}

// run is what a connection that gives IDs back keeps of a run of commands.
type run struct {
	id       reply.ID
	commands []*command
}

// model plays a client: it keeps each command's reply apart and puts them together in the end.
type model struct {
	queue
	names    []string // of the connections
	commands []*command
	runs     map[string][]run      // of connections that give IDs back
	order    map[string][]*command // of those that do not
	held     []*command
	over     map[reply.ID]bool // IDs at which nothing was due any more
	pushes   int
}

// TestAnyOrderOfAnswersGivesTheRepliesInOrder compares the queue with a model that is too simple to be wrong: the
// client gets the replies of the commands in order, up to the first one that is not whole.
func TestAnyOrderOfAnswersGivesTheRepliesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := model{runs: map[string][]run{}, order: map[string][]*command{}, over: map[reply.ID]bool{}}
		m.names = rapid.SampledFrom([][]string{{"a"}, {"frames"}, {"a", "b"}, {"a", "b", "frames"}}).Draw(t, "connections")
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			m.step(t)
			m.check(t)
		}
		for m.Due() > 0 {
			m.answer(t)
			m.check(t)
		}
		if m.Slots() != 0 || m.Mid() {
			t.Fatalf("%d slots are left of an empty queue, mid is %v", m.Slots(), m.Mid())
		}
	})
}

func (m *model) step(t *rapid.T) {
	switch rapid.IntRange(0, 7).Draw(t, "step") {
	case 0, 1, 2:
		m.ask(t)
	case 3:
		c := &command{from: "local", reply: m.word(t)}
		c.came, c.answered = len(c.reply), true
		m.commands = append(m.commands, c)
		m.say(c.reply)
	case 4:
		c := &command{from: "local", reply: m.word(t)}
		c.id = m.Hold()
		m.commands, m.held = append(m.commands, c), append(m.held, c)
	case 5:
		m.pushes++
		m.push("!")
	default:
		m.answer(t)
	}
}

func (m *model) word(t *rapid.T) string {
	return rapid.StringMatching("[a-z]{1,4}\\.").Draw(t, "reply")
}

// ask sends commands over one of the connections; that named "frames" gives no IDs back.
func (m *model) ask(t *rapid.T) {
	from := rapid.SampledFrom(m.names).Draw(t, "from")
	handler := rapid.SampledFrom([]named{"", "", "mute", "call"}).Draw(t, "handler")
	n := 1
	if handler == "call" {
		handler += named(strconv.Itoa(len(m.commands))) // each has one of its own
	} else {
		n = rapid.IntRange(1, 4).Draw(t, "n")
	}
	var list []*command
	for range n {
		c := &command{from: from, handler: handler}
		if handler != "mute" {
			c.reply = m.word(t)
		}
		list = append(list, c)
	}
	id := m.Add(from, handler, n)
	if m.over[id] {
		t.Fatalf("ID %d is used again", id)
	}
	for _, c := range list {
		c.id = id
	}
	m.commands = append(m.commands, list...)
	m.sent(from, id, list)
}

// sent puts commands at the end of what a connection has to answer.
func (m *model) sent(from string, id reply.ID, list []*command) {
	m.order[from] = append(m.order[from], list...)
	if runs := m.runs[from]; len(runs) > 0 && runs[len(runs)-1].id == id {
		runs[len(runs)-1].commands = append(runs[len(runs)-1].commands, list...)
		return
	}
	m.runs[from] = append(m.runs[from], run{id, list})
}

// answer has a connection, or the proxy, go on with what it owes.
func (m *model) answer(t *rapid.T) {
	var from []string
	for _, name := range m.names {
		if len(m.order[name]) > 0 {
			from = append(from, name)
		}
	}
	if len(m.held) > 0 {
		from = append(from, "local")
	}
	if len(from) == 0 {
		return
	}
	switch name := rapid.SampledFrom(from).Draw(t, "answers"); name {
	case "local":
		i := rapid.IntRange(0, len(m.held)-1).Draw(t, "held")
		c := m.held[i]
		m.held = append(m.held[:i:i], m.held[i+1:]...)
		m.comes(c, len(c.reply))
	case "frames":
		c := m.order[name][0]
		id, handler, ok := m.First(name)
		if !ok || id != c.id || handler != c.handler {
			t.Fatalf("slot %d (%q) is said to be answered next, want %d (%q)", id, handler, c.id, c.handler)
		}
		m.whole(name)
	default:
		c := m.order[name][0]
		if len(c.reply) > 1 && rapid.Bool().Draw(t, "partly") {
			m.comes(c, rapid.IntRange(c.came, len(c.reply)-1).Draw(t, "upto"))
			return
		}
		m.whole(name)
	}
}

// whole has a connection finish its next reply.
func (m *model) whole(from string) {
	c := m.order[from][0]
	m.order[from] = m.order[from][1:]
	runs := m.runs[from]
	if runs[0].commands = runs[0].commands[1:]; len(runs[0].commands) == 0 {
		m.runs[from] = runs[1:]
	}
	m.comes(c, len(c.reply))
}

// comes has bytes of a reply come in.
func (m *model) comes(c *command, upTo int) {
	n := 0
	if upTo == len(c.reply) {
		c.answered, n = true, 1
	}
	b := c.reply[c.came:upTo]
	c.came = upTo
	if c.handler == "mute" {
		m.Answer(c.id, n)
		m.drain()
		return
	}
	m.put(c.id, b, n, n == 0 && c.came > 0)
}

func (m *model) check(t *rapid.T) {
	var want strings.Builder
	due, ahead, mid := 0, true, false
	for _, c := range m.commands {
		if _, ok := m.Handler(c.id); !ok {
			m.over[c.id] = true
		}
	}
	for _, c := range m.commands {
		if ahead {
			want.WriteString(c.reply[:c.came])
			mid = !c.answered && c.came > 0
		}
		if !c.answered {
			ahead = false
			due++
		}
	}
	got := m.out.String()
	if strings.ReplaceAll(got, "!", "") != want.String() {
		t.Fatalf("the client has got %q, want %q", got, want.String())
	}
	if m.Due() != due || m.Mid() != mid {
		t.Fatalf("%d replies are due and mid is %v, want %d and %v", m.Due(), m.Mid(), due, mid)
	}
	if !mid && strings.Count(got, "!") != m.pushes {
		t.Fatalf("the client has got %q, want %d pushes", got, m.pushes)
	}
	for i := range got { // a push stands at the start, or behind a whole reply or another push
		if got[i] == '!' && i > 0 && got[i-1] != '.' && got[i-1] != '!' {
			t.Fatalf("a push stands within a reply: %q", got)
		}
	}
}

func TestAnOrdinaryCommandCostsNoAllocation(t *testing.T) {
	var q reply.Queue[*int]
	var lane int
	reply := []byte("+OK\r\n")
	if n := testing.AllocsPerRun(1000, func() {
		for range 3 {
			id := q.Add(&lane, nil, 16)
			q.Put(id, reply, false)
			q.Answer(id, 16)
			if q.Next() != nil {
				t.Fatal("something is left")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAQueueThatIsNeverEmptyDoesNotGrow(t *testing.T) {
	var q reply.Queue[*int]
	var a, b int
	last := q.Add(&a, nil, 1)
	if n := testing.AllocsPerRun(1000, func() {
		for _, lane := range []*int{&b, &a} {
			id := q.Add(lane, nil, 1)
			q.Answer(last, 1)
			if q.Next() != nil || q.Slots() != 1 {
				t.Fatalf("%d slots", q.Slots())
			}
			last = id
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
