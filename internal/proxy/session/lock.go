package session

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/buffers"
	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// lock executes a lock command. The session goes on when it has been answered.
func (s *Session) lock(r *request) bool {
	cmd, err := grammar.Parse(r.Args)
	if err != nil {
		return s.awaitQuiet() && s.answer(r, resp.AppendRawError(nil, err.Error()))
	}
	if cmd.Verb == grammar.LockList && !s.awaitReader() {
		return false
	}
	acquires := cmd.Verb == grammar.Lock || cmd.Verb == grammar.TryLock || cmd.Verb == grammar.FairLock
	engine, eerr := s.lockEngine()
	if eerr != nil {
		switch {
		case !s.awaitQuiet():
			return false
		case errors.Is(eerr, lockcmds.ErrFull):
			return s.answer(r, s.proxy.Refuse(noEngineFree, "lock engines", s.Addr))
		}
		return s.notCarriedOut(r)
	}
	if s.wait = waitEngine; acquires {
		s.wait = waitLock
	}
	s.locking, r.Held = r, true
	engine.Start(s.caller(), cmd)
	return true
}

// lockEngine returns the lock engine of the session's identity, which knows the session from now on.
func (s *Session) lockEngine() (*lockcmds.IdentityEngine, error) {
	id := lockcmds.EngineID{User: s.ident.User, Password: s.ident.Password, DB: s.ident.DB}
	for _, e := range s.engines {
		if e.ID() == id {
			return e, nil
		}
	}
	if s.out.Slots.Due() == 0 {
		s.leaveEngines()
	}
	for _, e := range s.engines { // the holds that the session has by another password of its user
		if e.ID().DB == id.DB {
			return e, nil
		}
	}
	e, err := s.proxy.Locks.Join(id, s.owner)
	if err == nil {
		s.engines = append(s.engines, e)
	}
	return e, err
}

// leaveEngines leaves the engines in which the session has no hold and no wait. So a session that moves from database to
// database keeps only the engines that it needs. Nothing is outstanding.
func (s *Session) leaveEngines() {
	s.engines = slices.DeleteFunc(s.engines, func(e *lockcmds.IdentityEngine) bool {
		gone := e.Leave(s.ID)
		if gone {
			s.proxy.Locks.Leave(e)
		}
		return gone
	})
}

var _ contract.Session = (*Session)(nil)

// caller is the session with the facts about its client.
func (s *Session) caller() contract.Caller {
	if s.token == "" { // made at the first lock command: most sessions use none
		s.token, s.announced = script.NewToken(), s.library != ""
	}
	return contract.Caller{
		Session: s, ID: s.ID, Token: s.token, Losses: s.lossesHere(), Memory: &s.lockMemory,
		Info: contract.ClientInfo{Addr: s.Addr, Name: s.called}, Library: s.library, Announced: s.announced,
		Proto: s.ident.Proto, NothingPending: s.out.Slots.Due() == 0,
	}
}

// lossesHere is the set of the session's losses in its database.
func (s *Session) lossesHere() *contract.Losses {
	set := s.losses[s.ident.DB]
	if set == nil {
		if s.losses == nil {
			s.losses = map[int]*contract.Losses{}
		}
		set = &contract.Losses{Memory: &s.lockMemory}
		s.losses[s.ident.DB] = set
	}
	return set
}

// Reply is the reply to the lock command in progress. It waits for its turn behind the replies to earlier commands.
// Requires the session lock.
func (s *Session) Reply(reply []byte) {
	if s.out.Gone() {
		return
	}
	s.reached()
	if reply = s.judged(reply); reply == nil {
		return
	}
	s.proxy.Counters.LockAnswer(reply)
	if !s.mutesLock() {
		s.out.say(reply)
	}
	if s.out.Slots.Due() > 0 {
		s.unanswered += s.lockBytes()
	}
	s.lockDone()
}

// judged is the reply to a lock command; nil: the connection closes, because Redis cannot be reached, or its answer is
// lost.
func (s *Session) judged(reply []byte) []byte {
	switch {
	case len(reply) > 0 && reply[0] == contract.Unanswered[0]:
		s.abandon()
		return nil
	case len(reply) > 0:
		return reply
	}
	words := s.Refusal()
	if words == nil {
		s.giveUp()
	}
	return words
}

// lockDone ends the wait for a lock command.
func (s *Session) lockDone() {
	if s.wait == waitLock || s.wait == waitEngine {
		s.wait = waitNone
	}
	s.behind = nil
	if r := s.locking; r != nil {
		s.locking = nil
		s.release(r)
	}
	if s.out.Slots.Due() == 0 {
		s.releasePin()
	}
}

// mutesLock reports whether the client gets no reply to the lock command in progress.
func (s *Session) mutesLock() bool { return s.locking != nil && s.locking.Muted }

// lockBytes is the size of the lock command in progress.
func (s *Session) lockBytes() int {
	if s.locking == nil {
		return 0
	}
	return s.locking.Size
}

// Push is an out-of-band message to the client. Requires the session lock.
func (s *Session) Push(b []byte) {
	if s.ident.Proto == 3 && !s.out.Gone() {
		s.out.push(b)
	}
}

// Script puts a script call on the session's own connection. Requires the session lock.
func (s *Session) Script(c contract.Call) {
	call := &scriptCall{s: s, call: c, muted: s.mutesLock()}
	call.sent = s.way.Script(c.Keys, call.build, call)
	s.script = buffers.Empty(s.script)
}

// scriptCall is the handler of one script's reply.
type scriptCall struct {
	s      *Session
	call   contract.Call
	sent   reply.Sent
	muted  bool
	reply  []byte // so far, if it comes in parts
	byText bool   // it was sent with the text of the script
	told   bool   // the engine has the outcome
}

// build makes the command in the session's scratch: by the script's hash if the connection has run it before, else by
// its text. Redis may not know the script, and a repeated call would run behind the client's later commands.
func (c *scriptCall) build(conn upstream.Connection) []byte {
	c.byText = conn == nil || !conn.Scripts().Has(c.call.Script.ID())
	c.s.script = appendCall(c.s.script[:0], c.call, c.byText)
	return c.s.script
}

// Take implements reply.Handler.
func (c *scriptCall) Take(at reply.ID, b []byte, n int, more bool) int {
	if more || c.reply != nil {
		c.reply = append(c.reply, b...)
		b = c.reply
	}
	if more {
		return n
	}
	if bytes.HasPrefix(b, []byte("-NOSCRIPT")) && !c.byText && !c.s.out.Gone() {
		c.repeat(at)
		return 0
	}
	v, _, err := resp.Decode(b)
	if err != nil { // no Redis answers so
		c.Lost(at, n, true)
		return n
	}
	if c.byText && !v.IsError() && !c.s.out.Gone() {
		c.sent.By().Scripts().Add(c.call.Script.ID())
	}
	c.finish(at, v, nil)
	return n
}

// repeat sends the call once more, with the text: Redis has forgotten the script, after a SCRIPT FLUSH, or another
// server of a cluster has the call now. The reply keeps its slot.
func (c *scriptCall) repeat(at reply.ID) {
	s := c.s
	conn := c.sent.By()
	conn.Scripts().Remove(c.call.Script.ID())
	c.reply = nil
	c.sent.Again(at, c.build(conn))
	s.script = buffers.Empty(s.script)
}

// finish gives the engine the outcome, once: a waiter may depend on the lock that the call was to free. The client gets
// the answer.
func (c *scriptCall) finish(at reply.ID, v resp.Value, err error) {
	if c.told {
		return
	}
	c.told = true
	s := c.s
	answer := c.call.For.Done(v, err)
	if s.out.Gone() {
		return
	}
	if answer == nil {
		s.host.Yield() // a worker of the engine may have the command now
		return
	}
	if answer = s.judged(answer); answer == nil {
		return
	}
	s.proxy.Counters.LockAnswer(answer)
	if !c.muted {
		s.out.put(at, answer, false)
	}
	s.lockDone()
}

// Lost implements reply.Handler.
func (c *scriptCall) Lost(at reply.ID, _ int, sent bool) {
	if sent {
		c.finish(at, resp.Value{}, contract.ErrInDoubt)
	} else {
		c.finish(at, resp.Value{}, &contract.UnsentError{Reply: c.s.Refusal()})
	}
}

var _ reply.Handler = (*scriptCall)(nil)

// appendCall builds the command that runs a script by its hash, or by its text.
func appendCall(dst []byte, c contract.Call, text bool) []byte {
	dst = resp.AppendHeader(dst, '*', 3+len(c.Keys)+len(c.Args))
	if text {
		dst = resp.AppendBulk(resp.AppendBulk(dst, "EVAL"), c.Script.Text())
	} else {
		dst = append(dst, c.Script.Evalsha()...)
	}
	dst = resp.AppendBulk(dst, strconv.Itoa(len(c.Keys)))
	for _, key := range c.Keys {
		dst = resp.AppendBulk(dst, key)
	}
	for _, arg := range c.Args {
		dst = resp.AppendBulk(dst, arg)
	}
	return dst
}
