package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// lease is the watchdog's lease of all engines.
const lease = 3 * time.Second

// proxy is one process: an engine, its own connections, and the lane that its sessions share.
type proxy struct {
	w      *world
	uuid   string
	name   string
	engine *lockcmds.Engine
	link   *link
	lane   *road

	view   []*server                 // by slot: the servers that count, as far as the proxy knows
	leftAt map[*server]time.Duration // when each server left the view last
	sawAt  time.Duration             // when the view changed last
	blind  time.Duration             // until then it learns of no change
	asking bool                      // it asks for the view
	then   []func()                  // when the view is known

	waiting     atomic.Int64
	killed      bool
	pausedUntil time.Duration
	next        *event        // of the watchdog
	due         time.Duration // the watchdog does nothing before, unless something happens in the proxy
}

func (p *proxy) String() string { return p.name }

func (w *world) newProxy() *proxy {
	w.born++
	p := &proxy{w: w, uuid: uuidOf(w.born), name: "p" + strconv.Itoa(w.born), leftAt: map[*server]time.Duration{}}
	for i := range w.slots {
		p.view = append(p.view, w.slots[i].shard.primary)
	}
	p.link = newLink(p)
	p.lane = p.newRoad("lane")
	engine, err := lockcmds.New(lockcmds.Options{
		Redis: p.link, UUID: p.uuid, Jobs: tasks{p}, Clock: proxyClock{p}, Defaults: lockcmds.Defaults{Lease: lease}, Waiting: &p.waiting,
		Logger: crashes,
	})
	if err != nil {
		panic(err)
	}
	p.engine = engine
	p.link.Subscribe(script.ForcedChannel) // as Run does
	return p
}

// watch lets the watchdog do what is due.
func (p *proxy) watch() {
	w := p.w
	if p.killed || p.pausedUntil > w.now {
		return
	}
	due, ok := p.engine.Step()
	if !ok {
		p.due = never
		return
	}
	at := max(due.Sub(epoch), w.now+time.Microsecond)
	p.due = at - lease // it renews early if it is called early, by a part of the lease
	if p.next != nil && !p.next.dead && p.next.at <= at && p.next.at > w.now {
		return
	}
	if p.next != nil {
		p.next.dead = true
	}
	p.next = w.in(at-w.now, p, func() {})
}

// kill ends the process. What it has sent may arrive all the same.
func (p *proxy) kill(keep int, late time.Duration) {
	w := p.w
	p.killed = true
	for _, s := range w.servers {
		gone := s.subs.drop(p.link)
		s.subs.haunt(w, gone, late)
	}
	for _, r := range []*road{p.lane, p.link.own, p.link.wait} {
		r.cut(keep, late, 0)
	}
	p.link.sub.cut(0, 0, 0)
}

// stop ends what the engine has begun.
func (p *proxy) stop() { p.engine.Drain() }

// client is one connection of a client, as a session of its proxy.
type client struct {
	w       *world
	p       *proxy
	slot    int
	id      uint64
	token   string
	name    string // that its owners begin with
	proto   int
	lost    *contract.Losses
	ended   bool
	endedAt time.Duration

	locked bool
	after  []func()

	todo    []*order
	current *slot         // the command that has no reply yet
	pending int           // scripts on their way
	waits   bool          // a start is due
	reads   time.Duration // until then it reads the last reply
	begin   func()        // sends the next command, if it may be sent

	holds   byLock[*belief]       // what the client knows to hold, as its own owner
	over    map[grant]struct{}    // what it knows to hold no more
	overAt  byLock[time.Duration] // since when
	told    map[grant]int         // pushes
	named   []named               // what it may hold for owners that others may be as well
	mine    map[named]int64       // how many holds of those it counts on
	permits []*belief             // what it knows to have
	// blurred is whether the client does not know what it holds: another one may have ended its grant by the handle.
	blurred byLock[bool]
}

// named is a lock, and an owner that several sessions are.
type named struct{ key, owner string }

// belief is what a client knows of a lock that it holds.
type belief struct {
	fence, count int64
	synced       bool // all replicas had it when the client was told
	chosen       bool // its lease is not simply renewed: the client has chosen one, or a limit
	bounded      bool // GRACE or MAXHOLD may end it before its lease does
	releasing    bool // an UNLOCK is on its way
	vague        bool // another client may have ended it by its handle
	released     bool // perhaps: it was the reply to an UNLOCK, so the client does not count on the lock

	until time.Duration // its lease lasts so long at least, as the last reply says
	lock  bool          // of a key with permits: it is a hold of another kind
}

// leased notes the lease that a reply to a command promises.
func (b *belief) leased(s *slot) {
	b.until = s.sent + s.lease()
	b.bounded = b.bounded || s.cmd.Grace >= 0 || s.cmd.MaxHold >= 0
}

// order is a command that a client is to send.
type order struct {
	line      string
	cmd       grammar.Command
	pipelined bool // at once behind the reply to the command before, with an ordinary command in front that has not been answered
}

// slot is a command whose reply is due.
type slot struct {
	*order
	sent time.Duration
}

// lease is the one that the command asks for.
func (s *slot) lease() time.Duration {
	d := cmp.Or(s.cmd.Lease, lease)
	if s.cmd.MaxHold >= 0 {
		d = min(d, s.cmd.MaxHold)
	}
	return d
}

func (w *world) newClient(n int, p *proxy, proto int) *client {
	w.ids++
	token := fmt.Sprintf("%012d", w.ids)
	c := &client{
		w: w, p: p, slot: n, id: w.ids, token: token, name: script.SessionName(p.uuid, token), proto: proto, lost: &contract.Losses{},
		over: map[grant]struct{}{}, told: map[grant]int{}, mine: map[named]int64{},
	}
	c.begin = c.next
	return c
}

func (c *client) String() string { return fmt.Sprintf("%s.c%d", c.p, c.id) }

func (c *client) owner() string { return c.name }

// who is the session whose acquire an owner is, or whose place that is, or the owner that several sessions are.
func who(owner string) string {
	if script.IsDefault(owner) && strings.Count(owner, ":") == 2 {
		return owner[:strings.LastIndexByte(owner, ':')]
	}
	return owner
}

// lock runs f with the session locked.
func (c *client) lock(f func()) {
	c.enter()
	f()
	c.leave()
}

func (c *client) enter() {
	if c.locked {
		panic("the session is locked already")
	}
	c.locked = true
}

func (c *client) leave() {
	c.locked = false
	for len(c.after) > 0 {
		f := c.after[0]
		c.after = c.after[1:]
		f()
	}
}

// send gives the client a command to send, behind those before.
func (c *client) send(o *order) {
	c.todo = append(c.todo, o)
	c.start(0)
}

// start sends the next command soon, if it may be sent: not before the client has read the last reply, unless the
// command is pipelined.
func (c *client) start(d time.Duration) {
	if len(c.todo) > 0 && c.todo[0].pipelined {
		d = 0
	}
	c.reads = max(c.reads, c.w.now+d)
	if c.waits || !c.ready() {
		return
	}
	c.waits = true
	c.w.in(c.reads-c.w.now, c.p, c.begin)
}

// ready reports whether a command may be sent.
func (c *client) ready() bool {
	return !c.ended && c.current == nil && len(c.todo) > 0
}

func (c *client) next() {
	c.waits = false
	if !c.ready() {
		return
	}
	s := &slot{order: c.todo[0], sent: c.w.now}
	c.todo = slices.Delete(c.todo, 0, 1)
	c.current = s
	if c.w.permits != nil {
		c.w.permits.sending(c, s)
	} else {
		c.sending(s)
	}
	if c.w.keep {
		c.w.note("%s > %s", c, s.line)
	}
	c.enter()
	c.p.engine.Start(contract.Caller{
		Session: c, ID: c.id, Token: c.token, Losses: c.lost, Proto: c.proto, NothingPending: !s.pipelined,
		Info: contract.ClientInfo{Addr: strconv.FormatUint(c.id, 10)},
	}, s.cmd)
	c.leave()
}

// Do, AfterUnlock, Script, Reply and Push make a contract.Session.
func (c *client) Do(f func()) bool {
	if c.ended {
		return false
	}
	c.lock(f)
	return true
}

func (c *client) AfterUnlock(f func()) {
	c.mustBeLocked("AfterUnlock")
	c.after = append(c.after, f)
}

func (c *client) mustBeLocked(what string) {
	if !c.locked {
		panic(what + " without the session's lock")
	}
}

func (c *client) Script(call contract.Call) {
	c.mustBeLocked("Script")
	c.pending++
	e := &errand{
		scriptCall: scriptCall{c.p, call.Script, call.Keys, call.Args}, c: c, s: c.current, call: call, home: c.w.slotOf(call.Keys[0]),
	}
	e.try()
}

// answered gives the engine the outcome of its script.
func (c *client) answered(e *errand, v resp.Value, err error) {
	c.enter()
	c.pending--
	out := e.call.For.Done(v, err)
	if !c.ended && out != nil {
		c.take(e.s, out)
	}
	c.leave()
}

func (c *client) Reply(b []byte) {
	c.mustBeLocked("Reply")
	if c.current == nil {
		c.w.fail("a reply too many", "%s: %q", c, b)
		return
	}
	c.take(c.current, b)
}

// take is the reply to a command, or the end of the connection in its place: the client comes again over a new one.
func (c *client) take(s *slot, b []byte) {
	switch {
	case bytes.Equal(b, contract.Unanswered):
		c.w.note("%s is closed  (%s)", c, s.line)
		c.ended, c.endedAt = true, c.w.now
		c.p.engine.Forsaken(c.id)
		c.w.seat(c.slot, c.p)
		next := c.w.clients[c.slot]
		for _, o := range c.todo {
			next.send(o)
		}
	case len(b) == 0:
		c.answer(s, []byte("-UNREACHABLE\r\n"))
	default:
		c.answer(s, b)
	}
}

func (c *client) OnBehind(string, func()) {}

func (c *client) Push(b []byte) {
	c.mustBeLocked("Push")
	if c.ended {
		c.w.fail("a push to a session that has ended", "%s", c)
		return
	}
	v, _, err := resp.Decode(b)
	if err != nil || len(v.Elems) < 4 {
		c.w.fail("a bad push", "%q", b)
		return
	}
	if c.proto == 3 && c.w.keep {
		c.w.note("%s < push %s", c, show(v))
	}
	key, fence := string(v.Elems[1].Str), v.Elems[2].Int
	g := grant{key, fence}
	if c.told[g]++; c.told[g] > 1 {
		c.w.fail("a loss is told twice", "%s: %s %d", c, key, fence)
	}
	mine := c.belief(key, fence)
	if mine != nil && (key == permitKey || key == sharedKey) && c.w.smooth && !mine.releasing && !mine.vague &&
		c.w.now < mine.until-2*skew*time.Millisecond && string(v.Elems[3].Str) == table.ReasonGone {
		c.w.fail("a planned change ended a hold", "%s: %s %d", c, key, fence)
	}
	c.finished(key, fence)
	for k := range c.mine {
		if k.key == key {
			delete(c.mine, k)
		}
	}
	if reason := string(v.Elems[3].Str); reason == string(watchdog.ReasonMaxHold) || reason == string(watchdog.ReasonExpired) {
		c.w.rules.expired(key, fence)
	}
}

// answer gives a command its reply.
func (c *client) answer(s *slot, b []byte) {
	if c.current != s {
		c.w.fail("a reply too many", "%s: %s: %q", c, s.line, b)
		return
	}
	if len(b) == 0 {
		c.w.fail("an empty reply", "%s: %s", c, s.line)
		return
	}
	c.current = nil
	v, n, err := resp.Decode(b)
	if err != nil || n != len(b) {
		c.w.fail("a bad reply", "%s: %s: %q", c, s.line, b)
		return
	}
	if c.w.keep {
		c.w.note("%s < %s  (%s)", c, show(v), s.line)
	}
	if c.w.permits != nil {
		c.w.permits.received(c, s, v)
	} else {
		c.received(s, v)
	}
	c.start(c.w.latency())
}

// sending is what the client knows when it sends a command.
func (c *client) sending(s *slot) {
	b := *c.holds.of(s.cmd.Key)
	if b != nil && s.cmd.Verb == grammar.Unlock && s.cmd.Owner == "" && s.cmd.Fence == 0 {
		b.releasing = true
	}
}

// wasTold reports whether the client was given the reply to that grant.
func (c *client) wasTold(key string, fence int64) bool {
	_, over := c.over[grant{key, fence}]
	return over || c.belief(key, fence) != nil
}

// received is what the client learns from a reply.
func (c *client) received(s *slot, v resp.Value) {
	switch {
	case s.cmd.Owner != "":
		c.receivedNamed(s, v)
		return
	case s.cmd.Fence != 0: // the grant is another client's
		if v.Int == 1 {
			c.w.rules.handled[grant{s.cmd.Key, s.cmd.Fence}] = c.w.now
		}
		return
	}
	key := s.cmd.Key
	b := *c.holds.of(key)
	text := string(v.Str)
	c.w.rules.replied(c, s, v)
	switch s.cmd.Verb {
	case grammar.Lock, grammar.TryLock, grammar.FairLock:
		switch {
		case b != nil && (v.Null || strings.HasPrefix(text, "NOTSYNCED")): // it may have set a shorter lease before it was rolled back
			b.until = min(b.until, s.sent+s.lease())
		case v.Kind != resp.Integer:
		case b != nil && b.fence == v.Int:
			b.count++
		default:
			// Else the clock of the new primary may be behind, or the server that has answered was none.
			_, counts := c.w.rules.made[grant{key, v.Int}]
			if b != nil && c.w.rules.back(key, b.fence, v.Int) && c.w.rules.known(grant{key, b.fence}) && counts {
				c.w.fail("a fence went back", "%s: %s: %d after %d", c, s.line, v.Int, b.fence)
			}
			if _, known := c.over[grant{key, v.Int}]; known {
				c.w.fail("a grant came back", "%s: %s: fence %d was over", c, s.line, v.Int)
			}
			b = &belief{fence: v.Int, count: 1, vague: *c.blurred.of(key)}
			*c.holds.of(key) = b
		}
		if v.Kind == resp.Integer {
			c.w.rules.counts(c, s, b)
		}
	case grammar.Unlock:
		if b != nil {
			b.releasing = false
		}
		switch {
		case v.Kind == resp.Integer && v.Int == 0 && b != nil:
			b.count--
		case v.Kind == resp.Integer && v.Int == 0 && !*c.blurred.of(key) && !*c.w.rules.lossy.of(key) && *c.overAt.of(key) < s.sent: // else a push has overtaken the reply
			c.w.fail("the ledger is wrong", "%s: %s: still held, but not known to", c, s.line)
		case v.Kind == resp.Integer && v.Int == 1:
			if b != nil && b.count != 1 && !*c.blurred.of(key) && !*c.w.rules.lossy.of(key) {
				c.w.fail("the ledger is wrong", "%s: %s: free, but %d holds were known", c, s.line, b.count)
			}
			c.finishedAny(key)
		case strings.HasPrefix(text, "NOTHELD"), strings.HasPrefix(text, "LOSTLEASE"):
			c.finishedAny(key)
		}
	case grammar.ExtendLock:
		if b != nil {
			b.chosen = true
		}
		if b != nil && v.Kind == resp.Integer {
			b.leased(s)
		}
		if strings.HasPrefix(text, "NOTHELD") || strings.HasPrefix(text, "LOSTLEASE") {
			c.finishedAny(key)
		}
	default:
	}
	if strings.HasPrefix(text, "LOSTLEASE") {
		c.finishedAny(key)
	}
}

// receivedNamed is what it learns from a reply about an owner that others may be as well: whether it may have to give
// something back.
func (c *client) receivedNamed(s *slot, v resp.Value) {
	k := named{s.cmd.Key, s.cmd.Owner}
	c.countsNamed(s, v)
	if v.Kind == resp.Integer && s.cmd.Verb != grammar.Unlock {
		c.w.rules.told(c, s, k)
	}
	switch {
	case acquires(s.cmd.Verb) && v.Kind == resp.Integer:
		delete(c.told, grant{s.cmd.Key, v.Int}) // other sessions have kept it: it may be lost again
		if !slices.Contains(c.named, k) {
			c.named = append(c.named, k)
		}
	case s.cmd.Verb == grammar.Unlock && (v.Int == 1 || strings.HasPrefix(string(v.Str), "NOTHELD") || strings.HasPrefix(string(v.Str), "LOSTLEASE")):
		c.named = slices.DeleteFunc(c.named, func(o named) bool { return o == k })
	}
}

// asks reports whether a command about that lock is on its way.
func (c *client) asks(key string) bool {
	return c.current != nil && c.current.cmd.Key == key
}

// holdsAny reports whether the client may hold anything.
func (c *client) holdsAny() bool {
	return c.holds != byLock[*belief]{} || len(c.named) > 0 || len(c.permits) > 0
}

func (c *client) finishedAny(key string) {
	if b := *c.holds.of(key); b != nil {
		c.finished(key, b.fence)
	}
}

// finished notes that a grant is over, as the client knows.
func (c *client) finished(key string, fence int64) {
	c.over[grant{key, fence}] = struct{}{}
	*c.overAt.of(key) = c.w.now
	if b := *c.holds.of(key); b != nil && b.fence == fence {
		*c.holds.of(key) = nil
	}
	if key == permitKey {
		c.permits = slices.DeleteFunc(c.permits, func(b *belief) bool { return b.fence == fence })
	}
}

// hangUp ends the client's connection.
func (c *client) hangUp() {
	if c.ended {
		return
	}
	c.w.note("%s hangs up", c)
	c.ended, c.endedAt = true, c.w.now
	c.lock(func() { c.p.engine.Ended(c.id) })
}

func show(v resp.Value) string {
	switch {
	case v.Null:
		return "(nil)"
	case v.IsError():
		return "-" + string(v.Str)
	case v.Kind == resp.Integer:
		return fmt.Sprintf(":%d", v.Int)
	case v.Kind == resp.Array || v.Kind == resp.Map || v.Kind == resp.Push:
		parts := make([]string, len(v.Elems))
		for i, e := range v.Elems {
			parts[i] = show(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return string(v.Str)
}
