package session

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A request is a command on its way to a server of a cluster, and the handler of its reply. Requests for different
// servers are on their way at the same time, and their replies keep their slots.
//
// Only a command that has certainly not run is sent again: a server refused it in Redis's own words, or it has not been
// written. It goes to a server of the view, or nowhere. A script may answer with any words after it has run. So the
// server is asked for the script's keys (EXISTS): if it does not refuse that, the reply is the script's own.
//
// A server that refuses a command may know more than the refreshed view. If the view still names that server, the
// command goes to the one that the refusal names.
type request struct {
	s   *Session
	h   reply.Handler // of its reply; nil: it passes to the client
	at  reply.ID
	raw []byte // the command
	subject
	state  requestState
	node   topology.Node // where it is sent
	to     *server       // where it was sent last; nil: nowhere yet
	fixed  bool          // it goes to that node and no other
	heirs  bool          // or else to its successor
	keys   commands.Spec // of a script
	alters bool          // it may change data

	// Of the reply.
	asked  bool   // it was sent behind an ASKING
	skips  bool   // the reply to that comes first
	begun  bool   // bytes of it have come
	failed []byte // the reply so far, if it is an error
	answer []byte // of a script: the error that it may have made up

	// Of refusals.
	attempts topology.Attempts
	rests    bool          // it waits for a new view
	moved    topology.Node // the server that serves its slot, as the last one that refused it says; Any: it names none
	asking   bool          // it is sent behind an ASKING
	then     []*request    // the refused ones that wait for the reply
}

// send sends the command being routed to its target. h handles its reply; nil: it passes to the client.
func (s *Session) send(raw []byte, h reply.Handler) {
	r := s.newRequest()
	r.h, r.subject, r.node, r.keys, r.alters = h, subject{s.slot, s.key}, s.target, s.way.keys, s.alters
	r.fixed, r.heirs = s.fixed || s.heirs, s.heirs
	r.raw = append(r.raw, raw...)
	s.sentBytes += len(raw)
	s.unanswered += slotCost
	if _, waits := s.queues[r.subject]; waits {
		s.unanswered += len(raw)
		r.attempts.Refused(s.cluster.FailoverWait())
	}
	r.at = s.out.Slots.Add(s.laneTo(r.node), r, 1)
	r.follow()
}

func (s *Session) newRequest() *request {
	if last := len(s.spare) - 1; last >= 0 {
		r := s.spare[last]
		s.spare = s.spare[:last]
		return r
	}
	return &request{s: s}
}

// maxSpare bounds the requests that an idle session keeps, and the bytes that each keeps.
const maxSpare, maxSpareRaw = 32, 512

// dropRequests gives up what a session that has ended will not send again.
func (s *Session) dropRequests() {
	for _, queue := range s.queues {
		for _, r := range queue {
			if r.state == sent || r.state == probing {
				continue
			}
			s.out.Slots.Answer(r.at, 1)
			s.sentBytes -= len(r.raw)
			if r.h != nil {
				r.h.Lost(r.at, 1, false)
			}
		}
	}
	s.queues, s.resting = nil, nil
}

// over drops an request that has been answered.
func (r *request) over() {
	s := r.s
	s.sentBytes -= len(r.raw)
	if len(s.spare) < maxSpare && cap(r.raw) <= maxSpareRaw {
		*r = request{s: s, raw: r.raw[:0], failed: r.failed[:0], answer: r.answer[:0]}
		s.spare = append(s.spare, r)
	}
}

// depart sends the request to its node.
func (r *request) depart() {
	r.state = sent
	if r.node == topology.Any {
		r.s.lose(r.at, 1, false)
		return
	}
	r.begun, r.failed = false, r.failed[:0]
	r.asked, r.asking = r.asking, false
	r.attempts.Sent()
	r.transmit(r.raw)
}

// transmit sends the request's command, or a question in its place, behind an ASKING if need be.
func (r *request) transmit(raw []byte) {
	s := r.s
	r.to = s.serverAt(r.node)
	r.to.last = r
	n := 1
	if r.skips = r.asked; r.asked {
		raw, n = slices.Concat(command.Asking, raw), 2
	}
	s.transmit(s.laneTo(r.node), raw, r.at, n)
}

// serverAt is what the session has sent to a server.
func (s *Session) serverAt(at topology.Node) *server {
	for _, one := range s.servers {
		if one.node == at {
			return one
		}
	}
	one := &server{node: at}
	s.servers = append(s.servers, one)
	return one
}

// Take implements reply.Handler.
func (r *request) Take(at reply.ID, b []byte, n int, more bool) int {
	if r.skips {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return 0
		}
		r.skips, b, n = false, b[end+1:], n-1
		if len(b) == 0 {
			return 0
		}
	}
	if !r.begun && b[0] == '-' || len(r.failed) > 0 {
		r.failed = append(r.failed, b...)
		b = r.failed
	}
	r.begun = true
	switch {
	case more && len(r.failed) > reply.LongestRefusal && r.state != probing:
		b, r.failed = r.failed, nil
		return r.pass(at, b, n, more)
	case more && (r.state == probing || len(r.failed) > 0):
		return 0
	case more:
		return r.pass(at, b, n, more)
	}
	then := r.arrived()
	n = r.end(at, b, n)
	turns(then)
	return n
}

// end takes the end of the reply.
func (r *request) end(at reply.ID, b []byte, n int) int {
	switch {
	case r.state == probing && r.madeUp():
		b = r.answer
	case r.state == probing:
		if r.refuse() {
			return 0
		}
		b = r.failed
	case len(r.failed) > 0:
		if r.reword() || r.probe() || r.refuse() {
			return 0
		}
		b = r.failed
	}
	if r.alters {
		r.s.note(r.node)
	}
	n = r.pass(at, b, n, false)
	r.settle()
	return n
}

// reword sends the call of a script that the server does not know to it again, with the text.
func (r *request) reword() bool {
	call, ok := r.h.(*scriptCall)
	if !ok {
		return false
	}
	raw := call.withText(r.failed)
	if raw == nil {
		return false
	}
	r.s.sentBytes += len(raw) - len(r.raw)
	r.raw = append(r.raw[:0], raw...)
	r.begun, r.failed = false, r.failed[:0]
	r.transmit(r.raw)
	return true
}

// probe asks the server for the keys of a script that seems to have been refused, or whether it answers if the script
// has none. The reply comes in place of the script's.
func (r *request) probe() bool {
	if r.keys.Keyless() || topology.ReadRefusal(r.failed).Reason == topology.NotRefused || r.s.out.Gone() {
		return false
	}
	args := resp.Split(r.raw, nil)
	question := [][]byte{[]byte("EXISTS")}
	for _, i := range r.keys.All(args, nil) {
		question = append(question, args[i])
	}
	if len(question) == 1 {
		question = [][]byte{[]byte("PING")}
	}
	r.state, r.answer = probing, append(r.answer[:0], r.failed...)
	r.begun, r.failed = false, r.failed[:0]
	r.transmit(resp.AppendCommand(nil, question...))
	return true
}

// madeUp reports whether the answer to a probe says that the script has made up the refusal: the server does not refuse
// the keys.
func (r *request) madeUp() bool {
	return topology.ReadRefusal(r.failed).Reason == topology.NotRefused
}

// pass hands bytes of the reply on.
func (r *request) pass(at reply.ID, b []byte, n int, more bool) int {
	if r.h != nil {
		return r.h.Take(at, b, n, more)
	}
	r.s.Pass(at, b, more)
	return n
}

// refuse has the request sent again if the error that it was answered with says that it has not run.
func (r *request) refuse() bool {
	why := topology.ReadRefusal(r.failed)
	if !why.Concerns(r.slot) || r.s.out.Gone() {
		return false
	}
	within := r.s.cluster.FailoverWait()
	r.attempts.Waited(within)
	if !r.attempts.Refused(within) {
		r.giveUp()
		return false
	}
	r.moved = topology.Any
	if node := r.s.noteRefusal(why); node != topology.Any {
		r.asking, r.node = true, node
		r.again()
		return true
	}
	if n := r.s.cluster.View().At(why.Address); n != nil {
		r.moved = topology.Node(n.ID)
	}
	// After one redirection it follows at once: the session's view may change later.
	r.rests = r.moved == topology.Any || r.moved == r.node || r.fixed || !r.attempts.First()
	r.again()
	return true
}

// unsent has the request sent again, which could not be sent. false: the client is told.
func (r *request) unsent() bool {
	s := r.s
	if s.out.Gone() || s.lane != nil && s.lane.Hopeless() || !r.attempts.Refused(s.cluster.FailoverWait()) {
		return false
	}
	then := r.arrived()
	r.failed = append(r.failed[:0], shared.NoUpstream...)
	r.rests = true
	r.again()
	turns(then)
	return true
}

// Lost implements reply.Handler.
func (r *request) Lost(at reply.ID, _ int, sent bool) {
	then := r.arrived()
	if r.h != nil {
		r.h.Lost(at, 1, sent)
	} else {
		r.s.Refuse(at, 1)
	}
	r.state = givenUp
	r.settle()
	turns(then)
}

// giveUp says that the request is not sent again. The client knows no other servers, so the refusal does not name one.
func (r *request) giveUp() {
	r.state = givenUp
	if topology.ReadRefusal(r.failed).Reason != topology.TryLate {
		r.failed = append(r.failed[:0], shared.NoUpstream...)
	}
}

var _ reply.Handler = (*request)(nil)
