package lockcmds

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/losses"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/redistest"
	"lockproxy/internal/resp"
)

// words splits a command into its arguments; ” is an empty one.
func words(line string) [][]byte {
	var args [][]byte
	for w := range strings.SplitSeq(line, " ") {
		if w == "''" {
			w = ""
		}
		args = append(args, []byte(w))
	}
	return args
}

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

// proxy is an engine as one process would run it.
type proxy struct {
	t    testing.TB
	srv  *redistest.Server
	e    *Engine
	addr string // of Redis
	next atomic.Uint64
	runs sync.WaitGroup
	// counts of Events
	attempts, handovers, losses atomic.Int64
}

// startProxy runs an engine on the server until the test ends.
func startProxy(t testing.TB, srv *redistest.Server, change func(*Options)) *proxy {
	t.Helper()
	p := &proxy{t: t, srv: srv}
	opts := Options{
		UUID:  fmt.Sprintf("00000000-0000-4000-8000-%012d", proxies.Add(1)),
		Lease: 3 * time.Second,
		Events: Events{
			Attempt:    func() { p.attempts.Add(1) },
			HandedOver: func() { p.handovers.Add(1) },
			Lost:       func(string) { p.losses.Add(1) },
		},
	}
	if srv != nil {
		p.addr = srv.Addr()
		opts.Redis = linkTo(t, redislink.Options{Addr: srv.Addr()})
	}
	if testing.Verbose() {
		opts.Logger = zaptest.NewLogger(t)
	}
	if change != nil {
		change(&opts)
	}
	var err error
	if opts.Jobs == nil {
		pool, err := jobs.New(64)
		if err != nil {
			t.Fatal(err)
		}
		opts.Jobs = pool
	}
	if p.e, err = New(opts); err != nil {
		t.Fatal(err)
	}
	p.runs.Go(func() {
		if err := p.e.Run(context.Background()); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.e.Close(ctx); err != nil {
			t.Error(err)
		}
		p.runs.Wait()
		if err := opts.Jobs.(*jobs.Pool).Close(patience); err != nil {
			t.Error(err)
		}
	})
	return p
}

var proxies atomic.Int64

// lane is a new connection to the engine's Redis.
func (p *proxy) lane() *lane {
	p.t.Helper()
	return newLane(p.t, p.addr)
}

// session is a client connection without a socket: commands in, replies out, and a lane of its own to a real Redis.
type session struct {
	t     testing.TB
	p     *proxy
	id    uint64
	proto int
	lane  *lane
	lost  *losses.Set

	mu      sync.Mutex
	later   []func()
	ended   bool
	busy    bool
	pending int // scripts on their way
	todo    []grammar.Command
	replies chan string // every reply, printed
	pushes  chan string
}

func (p *proxy) session(proto int) *session {
	p.t.Helper()
	s := &session{
		t: p.t, p: p, id: p.next.Add(1), proto: proto, replies: make(chan string, 1000), pushes: make(chan string, 1000),
	}
	s.lane = p.lane()
	p.t.Cleanup(s.hangUp)
	return s
}

// caller is the session with the facts about its client. Its token is short and known to tests. Called with mu held.
func (s *session) caller() Caller {
	if s.lost == nil {
		s.lost = losses.NewSet(losses.NewBudget(losses.DefaultBudget))
	}
	return Caller{
		Session: s, ID: s.id, Token: itoa(int64(s.id)), Losses: s.lost,
		Info: ClientInfo{Addr: fmt.Sprintf("10.0.0.%d:1", s.id), Name: "test"}, Proto: s.proto, NothingPending: s.pending == 0,
	}
}

func (s *session) Do(f func()) bool {
	s.mu.Lock()
	defer s.unlock()
	if s.ended {
		return false
	}
	f()
	return true
}

func (s *session) AfterUnlock(f func()) { s.later = append(s.later, f) }

// unlock unlocks mu, and then does what was put off until then.
func (s *session) unlock() {
	later := s.later
	s.later = nil
	s.mu.Unlock()
	for _, f := range later {
		f()
	}
}

func (s *session) Script(c Call) {
	s.pending++
	s.lane.send(c, func(reply resp.Value, err error) {
		s.mu.Lock()
		defer s.unlock()
		s.pending--
		out := c.Done(reply, err)
		switch {
		case s.ended:
		case out != nil:
			s.replies <- show(out)
			if !c.Pipelined {
				s.nextLocked()
			}
		case c.Pipelined:
			s.t.Errorf("%s: Pipelined without a reply", c.Script.Name())
		}
	})
	if c.Pipelined {
		s.nextLocked()
	}
}

func (s *session) Reply(reply []byte) {
	if len(reply) == 0 {
		s.t.Error("empty answer")
	}
	s.replies <- show(reply)
	s.nextLocked()
}

func (s *session) Push(b []byte) {
	if s.proto == 3 {
		s.pushes <- show(b)
	}
}

func (s *session) nextLocked() {
	s.busy = len(s.todo) > 0
	if s.busy {
		c := s.todo[0]
		s.todo = s.todo[1:]
		s.p.e.Start(s.caller(), c)
	}
}

// send starts a command, behind those sent before.
func (s *session) send(line string) {
	s.t.Helper()
	c, err := grammar.Parse(words(line))
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	s.mu.Lock()
	defer s.unlock()
	s.todo = append(s.todo, c)
	if !s.busy {
		s.nextLocked()
	}
}

// reply is the next reply.
func (s *session) reply() string {
	s.t.Helper()
	select {
	case r := <-s.replies:
		return r
	case <-time.After(patience):
		s.t.Fatalf("session %d: no reply", s.id)
		return ""
	}
}

// do sends a command and returns its reply.
func (s *session) do(line string) string {
	s.t.Helper()
	s.send(line)
	return s.reply()
}

// want sends a command and checks its reply.
func (s *session) want(line, reply string) {
	s.t.Helper()
	if got := s.do(line); got != reply {
		s.t.Fatalf("%s: %s, want %s", line, got, reply)
	}
}

// fence sends an acquire and returns its fence.
func (s *session) fence(line string) int64 {
	s.t.Helper()
	return fenceIn(s.t, s.do(line))
}

func fenceIn(t testing.TB, reply string) int64 {
	t.Helper()
	var n int64
	if _, err := fmt.Sscanf(reply, ":%d", &n); err != nil || n < 1 {
		t.Fatalf("reply %s is no fence", reply)
	}
	return n
}

func (s *session) push() string {
	s.t.Helper()
	select {
	case r := <-s.pushes:
		return r
	case <-time.After(patience):
		s.t.Fatalf("session %d: no push", s.id)
		return ""
	}
}

// quiet fails if there is a reply within d.
func (s *session) quiet(d time.Duration) {
	s.t.Helper()
	select {
	case r := <-s.replies:
		s.t.Fatalf("session %d: unexpected reply %s", s.id, r)
	case <-time.After(d):
	}
}

func (s *session) hangUp() {
	s.mu.Lock()
	defer s.unlock()
	if s.ended {
		return
	}
	s.ended = true
	s.p.e.Ended(s.id)
	s.lane.close()
}

// show prints a reply: "+text", ":7", "-ERR text", "(nil)", "[a b]".
func show(b []byte) string {
	v, n, err := resp.Decode(b)
	if err != nil || n != len(b) {
		return fmt.Sprintf("malformed %q: %v", b, err)
	}
	return showValue(v)
}

func showValue(v resp.Value) string {
	switch {
	case v.Null:
		return "(nil)"
	case v.IsError():
		return "-" + string(v.Str)
	case v.Kind == resp.Integer:
		return fmt.Sprintf(":%d", v.Int)
	case v.Kind == resp.Array || v.Kind == resp.Map || v.Kind == resp.Push:
		var parts []string
		for _, e := range v.Elems {
			parts = append(parts, showValue(e))
		}
		return string(rune(v.Kind)) + "[" + strings.Join(parts, " ") + "]"
	}
	return string(v.Str)
}

// lane is an ordered connection to Redis that carries scripts. Answers are given on one goroutine, in order.
type lane struct {
	t    testing.TB
	conn net.Conn
	work chan func(*bufio.Reader)
	done chan struct{}

	answered atomic.Int64 // by Redis, whether or not the session has been told

	mu     sync.Mutex
	closed bool
	hold   chan struct{} // while set, answers wait for it to be closed
	fail   error         // instead of the next answers; ErrUnsent also sends nothing
}

func newLane(t testing.TB, addr string) *lane {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	l := &lane{t: t, conn: conn, work: make(chan func(*bufio.Reader), 1000), done: make(chan struct{})}
	go l.read()
	return l
}

func (l *lane) read() {
	defer close(l.done)
	in := bufio.NewReader(l.conn)
	for f := range l.work {
		f(in)
	}
}

func (l *lane) send(c Call, done func(resp.Value, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fail, hold := l.fail, l.hold
	switch {
	case l.closed || errors.Is(fail, ErrUnsent):
		go done(resp.Value{}, ErrUnsent)
		return
	}
	args := [][]byte{[]byte("EVAL"), []byte(c.Script.Text()), []byte(itoa(int64(len(c.Keys))))}
	for _, arg := range slices.Concat(c.Keys, c.Args) {
		args = append(args, []byte(arg))
	}
	if _, err := l.conn.Write(resp.AppendCommand(nil, args...)); err != nil {
		fail = ErrInDoubt
	}
	l.work <- func(in *bufio.Reader) {
		v, err := readValue(in)
		l.answered.Add(1)
		if hold != nil {
			<-hold
		}
		if err != nil || fail != nil {
			v, err = resp.Value{}, ErrInDoubt
		}
		done(v, err)
	}
}

// close ends the lane after the answers on their way.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.work)
		go func() {
			<-l.done
			_ = l.conn.Close()
		}()
	}
}

func (l *lane) failing(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// holdBack keeps answers until the returned function is called.
func (l *lane) holdBack() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gate := make(chan struct{})
	l.hold = gate
	return func() {
		l.mu.Lock()
		l.hold = nil
		l.mu.Unlock()
		close(gate)
	}
}

func readValue(in *bufio.Reader) (resp.Value, error) {
	var buf []byte
	for {
		b, err := in.ReadByte()
		if err != nil {
			return resp.Value{}, err
		}
		buf = append(buf, b)
		if b != '\n' {
			continue
		}
		v, _, err := resp.Decode(buf)
		if errors.Is(err, resp.ErrIncomplete) {
			continue
		}
		return v, err
	}
}

// publish has the engine's own client connect.
func (e *Engine) publish(channel, message string) error {
	return e.own.Node(channel).Publish(e.life, []redislink.Message{{Channel: channel, Text: message}})
}

func linkTo(t testing.TB, o redislink.Options) *redislink.Client {
	t.Helper()
	c, err := redislink.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
