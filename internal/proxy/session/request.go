package session

import (
	"hash/maphash"
	"slices"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A request is a command from the reader to its reply.
//
// The reader (consume) makes it, and route decides its way: the functions of a policy (route.go and the files behind
// it) read the fields of the command, and set those of its way. As a rule it ends when route returns; the handlers of
// its reply have copied the few facts that they need. It is held longer:
//
//   - In front of a cluster it is the handler of its own reply. A server may refuse it. Then it is sent again, in the
//     order of its key (pause.go). A command for several servers has a part for each.
//   - A command on a pin that the pin's server refuses is routed anew (Session.repeated).
//   - A lock command is held until the lock engine answers it (Session.locking).
//   - A large command is held until its last byte has come (Session.large), one of very many keys until it has been
//     divided (longParts), and a CLIENT TRACKING until the other client's connection has a number (trackTo).
//
// A run of plain commands for the lane has no request (batch): the hot path has nothing to decide.
//
// Only a command that has certainly not run is sent again: a server refused it in Redis's own words, or it has not been
// written. It goes to a server of the view, or nowhere. A script that answers with such words after it has run is run
// again.
//
// A server that refuses a command may know more than the refreshed view. If the view still names that server, the
// command goes to the one that the refusal names.
//
// Requests are recycled. The session's mutex guards them, but while longParts divides one.
type request struct {
	s *Session

	// The command.
	row    *command.Row
	policy command.Policy // of this form of the command
	raw    []byte         // its bytes
	lent   bool           // they are the client's buffer, and own takes a copy before route returns
	args   [][]byte       // of it, until route returns
	size   int            // of the command as it came, in bytes
	muted  bool           // the client gets no reply

	// Its way in front of a cluster. route sets it, and a refusal changes it.
	target topology.Node
	asking bool // it goes there behind an ASKING
	bound  bond
	slot   int    // of its first key; negative: it has none
	key    uint64 // a hash of its only key; 0: it has none, or several

	// How long it lives.
	routing bool   // route has not returned
	held    bool   // it outlives route
	own     []byte // space for lent bytes then
	once    bool   // it was made together with others, and is not recycled

	// Its reply in front of a cluster.
	h      reply.Handler // of other replies than refusals; nil: they pass to the client
	at     reply.ID
	lane   *upstream.Lane // by which it was sent last; nil: no server was known
	tx     int            // it is a transaction: the number of replies before that to EXEC
	ahead  reply.Ahead    // the replies that come first
	begun  bool           // bytes of the reply have come
	failed []byte         // the reply so far, if it is an error

	// Refusals.
	attempts   topology.Attempts // of a command on a pin
	chain      *chain            // of its key, since it has been refused; nil: it has not
	awaitsView bool              // it is not sent again before there is a new view
	moved      topology.Node     // the server that serves its slot, as the last one that refused it says; Any: it names none
}

// A bond says which server a request is for.
type bond uint8

const (
	toSlot   bond = iota // the one that serves its slot; any one if it has no slot
	toHeir               // its target, or the replica that has been promoted in the target's place
	toServer             // its target, whatever happens
)

// ordinaryRow is that of the commands of a batch, and of the proxy's own commands; callRow that of the script calls of
// the lock engine.
var ordinaryRow, callRow = &command.Row{}, &command.Row{Writes: true}

// newRequest begins a command.
func (s *Session) newRequest(row *command.Row, raw []byte) *request {
	var r *request
	if last := len(s.spare) - 1; last >= 0 {
		r, s.spare = s.spare[last], s.spare[:last]
	} else {
		r = &request{s: s}
	}
	r.row, r.raw, r.lent, r.size = row, raw, true, len(raw)
	return r
}

// maxSpare bounds the requests that an idle session keeps, and the bytes that each keeps.
const maxSpare, maxSpareRaw = 32, 512

// release ends the life of a request: now, or when route returns if it has not.
func (r *request) release() {
	if r.held = false; r.routing {
		return
	}
	if s := r.s; !r.once && len(s.spare) < maxSpare && cap(r.own) <= maxSpareRaw {
		*r = request{s: s, own: r.own[:0], failed: r.failed[:0]}
		s.spare = append(s.spare, r)
	}
}

// keep holds a request that may be routed anew, with a copy of its bytes. The garbage collector ends it.
func (r *request) keep() {
	if r.held { // it is being routed anew
		r.attempts.Sent()
		return
	}
	r.held = true
	r.own = append(r.own[:0], r.raw...)
}

// part is the command, or a question about it, for one server.
func (r *request) part(raw []byte, slot int, at topology.Node) *request {
	p := r.s.newRequest(r.row, raw)
	p.muted, p.bound, p.slot, p.target = r.muted, r.bound, slot, at
	return p
}

// sendParts sends parts of the command, whose bytes it takes over, to the owners of their slots. first is the number of
// the first part. Requests that would not be kept are made at once.
func (r *request) sendParts(parts []scatter.Part, replies *reply.Gathering, first int) {
	s := r.s
	more := make([]request, max(0, len(parts)-maxSpare))
	for i, part := range parts {
		var p *request
		if i < len(more) {
			p = &more[i]
			*p = request{s: s, row: r.row, raw: part.Raw, size: len(part.Raw), once: true}
		} else {
			p = s.newRequest(r.row, part.Raw)
			p.lent = false
		}
		p.muted, p.slot, p.target = r.muted, part.Slot, s.ownerOf(part.Slot)
		p.send(replies.Part(first + i))
	}
}

// routed has a function decide the way of the request, which ends then unless it is held.
func (r *request) routed(decide func(*request) bool) bool {
	r.routing = true
	done := decide(r)
	if r.routing, r.args, r.raw = false, nil, r.own; !r.held {
		r.release()
	}
	return done
}

// answerWith gives the proxy's own reply.
func (r *request) answerWith(b []byte) bool {
	if !r.muted {
		r.s.out.say(b)
	}
	return true
}

// handler handles a reply that passes as it is.
func (r *request) handler() reply.Handler {
	if r.muted {
		return reply.Discard{}
	}
	return nil
}

// forward sends the command, in these words, on the pin or a lane. h handles the reply; nil: it passes to the client.
func (r *request) forward(raw []byte, h reply.Handler) {
	switch s := r.s; {
	case !s.clustered() || s.pin != nil && !(s.listening() && s.onLanes(r)):
		s.forward(r.row, raw, h, 1)
	case r.held: // as a question about it
		r.part(raw, r.slot, r.target).send(h)
	default:
		r.raw = raw
		r.send(h)
	}
}

// look finds the slot of the command, and its key.
func (r *request) look() {
	r.slot, r.key = -1, 0
	i := r.row.Keys.First(r.args)
	if i == 0 {
		return
	}
	if r.slot = hashslot.Of(r.args[i]); !r.row.Keys.Several(r.args) {
		r.key = maphash.Bytes(seed, r.args[i])
	}
}

// several reports whether the command has several keys.
func (r *request) several() bool { return r.slot >= 0 && r.key == 0 }

var seed = maphash.MakeSeed()

// subject is what the command concerns if its order counts.
func (r *request) subject() subject { return subject{r.slot, r.key} }

// send sends the request to its target in front of a cluster. h handles its reply; nil: it passes to the client.
func (r *request) send(h reply.Handler) {
	s := r.s
	r.h, r.held = h, true
	if r.lent {
		r.own = append(r.own[:0], r.raw...)
		r.raw, r.lent = r.own, false
	}
	s.sentBytes += len(r.raw)
	s.unanswered += slotCost
	r.at = s.out.Slots.Add(s.laneTo(r.row, r.target), r, 1)
	r.depart()
}

// depart sends the request to its node.
func (r *request) depart() {
	if r.target == topology.Any {
		r.lane = nil
		r.leave()
		r.s.lose(r.at, 1, false)
		return
	}
	r.transmit(r.raw)
}

// leave says that the request is on its way.
func (r *request) leave() {
	r.s.sending++
	if c := r.chain; c != nil {
		c.sent++
	}
}

// transmit sends the request's command, or a question in its place, behind an ASKING if need be.
func (r *request) transmit(raw []byte) {
	s := r.s
	r.begun, r.failed = false, r.failed[:0]
	r.leave()
	r.ahead = reply.NewAhead(r.asking, r.tx)
	n := 1 + r.tx
	if r.asking {
		raw, n = slices.Concat(command.Asking, raw), n+1
	}
	conn := s.laneTo(r.row, r.target)
	r.lane = s.lane
	s.transmit(conn, raw, r.at, n)
}

// Take implements reply.Handler.
func (r *request) Take(at reply.ID, b []byte, n int, more bool) int {
	b, n = r.ahead.Strip(b, n)
	switch ran, over := r.ahead.Ran(); {
	case ran:
		if r.s.abandon(); over {
			r.arrive()
			r.Lost(at, 1, true)
			return 1
		}
		return 0
	case len(b) == 0:
		return 0
	}
	if !r.begun && b[0] == '-' || len(r.failed) > 0 {
		r.failed = append(r.failed, b...)
		b = r.failed
	}
	r.begun = true
	switch {
	case more && len(r.failed) > reply.LongestRefusal:
		b, r.failed = r.failed, nil
		return r.pass(at, b, n, more)
	case more && len(r.failed) > 0:
		return 0
	case more:
		return r.pass(at, b, n, more)
	}
	r.arrive()
	n = r.end(at, b, n)
	r.s.proceed()
	return n
}

// arrive says that the reply to what the request has sent last is in, or will not come.
func (r *request) arrive() {
	r.s.sending--
	if c := r.chain; c != nil {
		c.sent--
	}
}

// end takes the end of the reply.
func (r *request) end(at reply.ID, b []byte, n int) int {
	if len(r.failed) > 0 {
		if r.tx > 0 {
			r.failed = append(r.failed[:0], r.ahead.Judge(r.slot, r.failed)...)
		}
		if r.sendAgain() {
			return 0
		}
		b = r.failed
	}
	if n = r.pass(at, b, n, false); n > 0 {
		r.settle(true)
	}
	return n
}

// settle ends a request that has its final reply, and goes on with the others of its key. done: it has been carried
// out.
func (r *request) settle(done bool) {
	s, c := r.s, r.chain
	if p := s.pause; p != nil && c == nil {
		c = p.chains[r.subject()]
	}
	s.sentBytes -= len(r.raw)
	if c != nil && !c.over() {
		c.settled(r, done)
	}
	r.release()
}

// fail makes the refusal the reply to the client.
func (r *request) fail() {
	s, at := r.s, r.at
	s.sentBytes -= len(r.raw)
	switch {
	case len(r.failed) > 0:
		r.giveUp()
		r.pass(at, r.failed, 1, false)
	case s.Refusal() == nil:
		s.giveUp()
		fallthrough
	default:
		r.miss(false)
	}
	r.release()
	s.Answered(at, 1)
}

// miss says that the request has no reply.
func (r *request) miss(sent bool) {
	if r.h != nil {
		r.h.Lost(r.at, 1, sent)
	} else {
		r.s.Refuse(r.at, 1)
	}
}

// sendInstead sends other words to the server that has answered. Their reply comes in place of its answer.
func (r *request) sendInstead(raw []byte) {
	r.s.sentBytes += len(raw) - len(r.raw)
	r.own = append(r.own[:0], raw...)
	r.raw = r.own
	r.transmit(r.raw)
}

// question asks for the keys of a request, which has bytes of its own.
func (r *request) question() []byte {
	args := resp.Split(r.raw, nil)
	words := [][]byte{[]byte("EXISTS")}
	for _, i := range r.row.Keys.All(args, nil) {
		words = append(words, args[i])
	}
	return resp.AppendCommand(nil, words...)
}

// pass hands bytes of the reply on.
func (r *request) pass(at reply.ID, b []byte, n int, more bool) int {
	if r.h != nil {
		return r.h.Take(at, b, n, more)
	}
	r.s.Pass(at, b, more)
	return n
}

// sendAgain has the request sent again if the error that it was answered with says that it has not run.
func (r *request) sendAgain() bool {
	s := r.s
	why := topology.ReadRefusal(r.failed)
	if !why.Concerns(r.slot) || s.out.Gone() {
		return false
	}
	asked, first := r.target, r.chain == nil
	r.goTo(s.noteRefusal(why, asked))
	r.moved = topology.Any
	if n := s.cluster.View().Named(why, asked); n != nil {
		r.moved = topology.Node(n.ID)
	}
	// After one redirection it follows at once: the session's view may change later.
	r.awaitsView = !r.asking && (r.moved == topology.Any || r.moved == r.target || r.bound != toSlot || !first)
	r.again()
	return true
}

// again has the request, which was refused, sent again when its turn comes.
func (r *request) again() {
	c := r.s.chainOf(r)
	if c.hold(r); c.retries && c.sent == 0 {
		c.next()
	}
}

// goTo has the request sent behind an ASKING to the server that has its key already; Any: there is none.
func (r *request) goTo(asking topology.Node) {
	if r.asking = asking != topology.Any; r.asking {
		r.target = asking
	}
}

// unsent has the request sent again, which could not be sent. false: the client is told.
func (r *request) unsent() bool {
	s := r.s
	if s.out.Gone() || s.stranded() || r.lane != nil && r.lane.Hopeless() {
		return false
	}
	r.failed, r.awaitsView, r.asking = r.failed[:0], true, false
	r.again()
	s.proceed()
	return true
}

// Lost implements reply.Handler.
func (r *request) Lost(at reply.ID, _ int, sent bool) {
	r.miss(sent)
	r.settle(false)
	r.s.proceed()
}

// giveUp says that the request is not sent again. The client knows no other servers, so the refusal does not name one.
func (r *request) giveUp() {
	switch why := topology.ReadRefusal(r.failed); {
	case why.Reason == topology.TryLate:
	case why.Reason == topology.Asking && r.s.cluster.View().Named(why, r.target) != nil:
		// All its keys have left, but the slot has not: a lock command is sent until it has.
		r.failed = append(r.failed[:0], tryAgain...)
	default:
		r.failed = append(r.failed[:0], reply.ClusterDown...)
	}
	if r.tx > 0 {
		r.failed = reply.Aborted(r.failed)
	}
}

var _ reply.Handler = (*request)(nil)
