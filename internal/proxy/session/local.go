package session

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// local handles a command about the client, not about Redis's data. Nothing is outstanding. Redis still judges the
// right to the command: it gets the command, or a similar one that changes nothing on a connection that other sessions
// share.
func (s *Session) local(r *request) bool {
	if r.Row.Name == "quit" {
		return s.quit(r)
	}
	if r.Row.Name == "reset" {
		return s.reset(r)
	}
	h := &reply.Reply{Session: s, Muted: r.Muted}
	switch command.Keyword(r.Args, 1) {
	case "setname":
		if len(r.Args) == 3 {
			r.Raw = s.setName(r, h)
		}
	case "getname":
		if s.pin == nil {
			h.Replace = s.nameFor
		}
	case "setinfo":
		if len(r.Args) == 4 && validName(r.Args[3]) {
			r.Raw = s.setInfo(r, h)
		}
	case "reply":
		if len(r.Args) == 3 {
			r.Raw = s.setReplyMode(r, h)
		}
	case "maint_notifications":
		// Notifications of an upstream's maintenance concern the proxy's connections, not the client's. Clients ask on
		// connect and accept this answer.
		if s.proxy.Lists("client", "maint_notifications") {
			return s.answer(r, resp.AppendError(nil, resp.Err, "unknown subcommand '"+string(r.Args[1])+"'. Try CLIENT HELP."))
		}
	}
	if s.pin != nil {
		s.pin.fresh = false
		s.pin.tx.count()
	}
	s.way.Send(r, r.Raw, h)
	return true
}

// quit answers OK and closes the connection, as Redis still does. A session's own connection quits first: once the
// client has its answer, no trace of it is left at Redis, such as a subscription.
func (s *Session) quit(r *request) bool {
	words := []byte(resp.OK)
	if r.Muted {
		words = words[:0]
	}
	if s.pin != nil && s.pin.mode != readsRaw {
		s.way.Send(r, r.Raw, reply.Discard{})
	}
	s.goodbye(words)
	return true
}

var resetReply = []byte("+RESET\r\n")

// reset brings the session, and its pin if it has one, back to the state of a new client.
func (s *Session) reset(r *request) bool {
	muted := s.replyMode == replySkip // RESET ends the other kind of silence before it answers
	if s.pin == nil {
		if len(r.Args) != 1 {
			s.way.Send(r, r.Raw, reply.Passing(r.Muted))
			return true
		}
		s.resetState()
		r.Muted = muted
		return s.answer(r, resetReply)
	}
	if len(r.Args) != 1 {
		muted = r.Muted
	}
	s.wait = waitReply
	s.way.Send(r, r.Raw, &reply.Reply{Session: s, Muted: muted, Done: func(reply []byte) {
		s.Resume()
		if string(reply) == string(resetReply) {
			s.resetPin()
		}
	}})
	return true
}

func (s *Session) resetState() {
	s.endLocks()
	s.replyMode, s.name, s.called = replyOn, "", ""
	s.become(s.proxy.FirstIdentity())
}

// resetPin is resetState for a session whose pin has been reset by Redis.
func (s *Session) resetPin() {
	p := s.pin
	p.tx.end()
	p.Channels, p.Patterns, p.Shards = 0, 0, 0
	s.resetState()
	p.conn.Named("", false)
	p.keep, p.sole = false, false
	p.spent = true // RESET has removed its credentials, and Redis may demand some
}

// setName is CLIENT SETNAME. It returns the command to send.
func (s *Session) setName(r *request, h *reply.Reply) []byte {
	name := string(r.Args[2])
	h.Done = func(reply []byte) {
		if resp.IsOK(reply) {
			s.rename(name, true)
		} else {
			s.called = s.name
		}
	}
	if !validName(r.Args[2]) {
		return r.Raw
	}
	s.called = name
	if s.pin == nil {
		return resp.AppendCommand(nil, string(r.Args[0]), string(r.Args[1]), "")
	}
	return r.Raw
}

// setInfo is CLIENT SETINFO with a value that Redis would accept. It returns the command to send. The value itself is
// sent on no connection, because the connection may serve another client later.
func (s *Session) setInfo(r *request, h *reply.Reply) []byte {
	option, value := string(r.Args[2]), string(r.Args[3])
	i := slices.IndexFunc(libOptions, func(name string) bool { return strings.EqualFold(name, option) })
	h.Done = func(reply []byte) {
		if resp.IsOK(reply) && i >= 0 {
			s.lib[i] = value
		}
	}
	if i == 0 {
		s.library = strings.Clone(value[:min(len(value), longestLibrary)])
	}
	return resp.AppendCommand(nil, string(r.Args[0]), string(r.Args[1]), option, "") // a refusal quotes the client's words
}

// longestLibrary is how much of a library's name is kept for the log, in bytes.
const longestLibrary = 64

// libOptions are the options of CLIENT SETINFO, in the order of Session.lib.
var libOptions = []string{"lib-name", "lib-ver"}

// nameFor is the reply to CLIENT GETNAME if Redis has answered it.
func (s *Session) nameFor(reply []byte) []byte {
	switch {
	case reply[0] == '-':
		return reply
	case s.name == "":
		return resp.AppendNull(nil, s.ident.Proto)
	}
	return resp.AppendCommand(nil, s.name)[len("*1\r\n"):]
}

// setReplyMode is CLIENT REPLY ON|OFF|SKIP. Only ON is answered. It returns the command to send.
func (s *Session) setReplyMode(r *request, h *reply.Reply) []byte {
	var mode replyMode
	switch command.Keyword(r.Args, 2) {
	case "on":
		mode = replyOn
	case "off":
		mode = replyOff
	case "skip":
		mode = replySkip
	default:
		return r.Raw
	}
	muted := r.Muted
	h.Muted = false
	h.Replace = func(reply []byte) []byte {
		s.Resume()
		switch {
		case !resp.IsOK(reply):
			if muted {
				return nil
			}
			return reply
		case mode == replySkip && s.replyMode == replyOff:
			return nil
		}
		s.replyMode = mode
		if mode == replyOn {
			return reply
		}
		return nil
	}
	s.wait = waitReply // the next command's reply depends on it
	return command.ReplyOn
}

// CLIENT subcommands about the client itself: Redis answers on the connection that the session uses, and the proxy
// replaces the parts that it knows better.

// augment is the handler of the reply to a command whose policy is Augmented.
func (s *Session) augment(r *request) *reply.Reply {
	h := &reply.Reply{Session: s, Muted: r.Muted}
	switch {
	case r.Row.Name == "client":
		h.Replace = s.aboutSelf(r)
	case r.Row.Name != "info":
		h.Replace = s.proxy.Merger.For(r.Args, s.ident.Proto)
	case command.IsOwnInfo(r.Args):
		h.Replace = func(reply []byte) []byte {
			if reply[0] != '$' && reply[0] != '=' {
				return reply
			}
			return s.info()
		}
	default:
		h.Replace = func(reply []byte) []byte { return s.way.Mask("info", s.proxy.Counts().Edit(reply)) }
	}
	return h
}

// info is the reply to INFO lockproxy.
func (s *Session) info() []byte {
	return s.proxy.Info(s.ident.Proto, lockcmds.Account{User: s.ident.User, DB: s.ident.DB})
}

// aboutSelf returns the function that edits Redis's reply to CLIENT ID, INFO, GETREDIR or TRACKINGINFO.
func (s *Session) aboutSelf(r *request) func(reply []byte) []byte {
	args, size := 0, len(r.Raw)
	for _, arg := range r.Args {
		args += len(arg)
	}
	switch command.Keyword(r.Args, 1) {
	case "id":
		return func(reply []byte) []byte {
			if reply[0] != ':' {
				return reply
			}
			return resp.AppendInteger(nil, int(s.ID))
		}
	case "info":
		return func(reply []byte) []byte { return s.ownLine(reply, size, args) }
	}
	// The redirection is that of the time of the answer: an unanswered command may change it.
	return func(reply []byte) []byte { return s.redir.Translate(reply) }
}

// ownLine is the answer to CLIENT INFO.
func (s *Session) ownLine(reply []byte, size, args int) []byte {
	text, ok := clients.Text(reply)
	if !ok {
		return reply
	}
	c := s.described()
	c.Query += int64(size)
	c.Args = int64(args)
	var own clients.Line
	if s.pin != nil {
		own = bytes.TrimRight(text, "\r\n")
	}
	return clients.AppendText(nil, reply, append(c.Append(nil, clients.ShapeOf(text), own), '\n'))
}

// pauseOf returns the action behind Redis's answer to a CLIENT PAUSE or UNPAUSE: reads and writes separate before the
// first write is held back. A pause from another client of Redis is noticed when a lane stands still.
func (s *Session) pauseOf(r *request) func(reply []byte) {
	if r.Row.Name != "client" {
		return nil
	}
	var length time.Duration
	switch command.Keyword(r.Args, 1) {
	case "pause":
		ms, err := strconv.ParseInt(command.Keyword(r.Args, 2), 10, 64)
		if err != nil {
			return nil // Redis refuses it
		}
		length = time.Duration(min(ms, maxPause.Milliseconds())) * time.Millisecond
	case "unpause":
	default:
		return nil
	}
	return func(reply []byte) {
		if resp.IsOK(reply) {
			s.proxy.Upstream.Lanes.Paused(time.Now().Add(length))
		}
	}
}

// maxPause bounds the time for which a pause is remembered, not the pause.
const maxPause = 24 * time.Hour
