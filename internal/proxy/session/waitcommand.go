package session

import (
	"bytes"
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// This file carries out WAIT and WAITAOF, which count the replicas that have the writes of a session. The writes
// travelled on shared connections, in front of a cluster to several servers. So each of these servers is asked, one
// after the other, on a connection of the session's own. A mark, sent on it before, has the server count from a point
// behind the writes. It does no I/O.

// waitMarks are the commands that are sent in front of WAIT. They change nothing. Redis before 7.2 counts from the end
// of the connection's last command, whatever it was: no ACL refuses HELLO. Later versions and Valkey count from the
// last command that went to the replicas. PUBLISH does, except in a cluster; the channel has no subscriber. FUNCTION
// RESTORE of no functions does everywhere, but counts as a write.
var waitMarks = [...][]byte{
	resp.AppendCommand(nil, "HELLO"),
	resp.AppendCommand(nil, "PUBLISH", "lockproxy:wait", ""),
	resp.AppendCommand(nil, "FUNCTION", "RESTORE", "\n\x00]\x9b\\@\x0f\x7f\xa2\xda"),
}

// The places of the commands in waitMarks.
const (
	markGreeting = iota
	markMessage
	markFunctions
)

// A waitRound asks one server after the other. It belongs to one session, which guards it.
type waitRound struct {
	clustered bool
	nodes     []topology.Node // that have not answered; the first one is being asked
	deadline  time.Time       // zero: there is none
	replies   [][]byte

	// Of the server that is being asked.
	byWrite bool // it counts from the last command that went to the replicas
	marked  bool // it has taken a command that does
	refusal []byte
}

// beginWait prepares the round over servers; there is at least one. args are those of the command.
func beginWait(args [][]byte, nodes []topology.Node, clustered bool) *waitRound {
	r := &waitRound{clustered: clustered, nodes: nodes}
	if ms, err := strconv.ParseInt(string(args[len(args)-1]), 10, 64); err == nil && ms > 0 && ms < maxTimeout {
		r.deadline = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	return r
}

// maxTimeout is a number of milliseconds beyond which time is not measured.
const maxTimeout = 1 << 40

// at is the server to ask.
func (r *waitRound) at() topology.Node { return r.nodes[0] }

// command is the command for this server: the time limit is the rest of the client's.
func (r *waitRound) command(args [][]byte, raw []byte) []byte {
	r.byWrite, r.marked, r.refusal = false, false, nil
	if len(r.replies) == 0 || r.deadline.IsZero() {
		return raw
	}
	args = slices.Clone(args)
	args[len(args)-1] = strconv.AppendInt(nil, max(1, time.Until(r.deadline).Milliseconds()), 10) // 0 is no limit
	return resp.AppendCommand(nil, args...)
}

// mark takes the reply to one of waitMarks.
func (r *waitRound) mark(i int, reply []byte) {
	failed := reply[0] == '-'
	switch {
	case i == markGreeting:
		r.byWrite = !failed && countsWrites(reply)
	case i == markMessage && r.clustered:
	case !failed:
		r.marked = true
	case i == markFunctions:
		r.refusal = bytes.Clone(reply)
	}
}

// countsWrites reads a reply to HELLO.
func countsWrites(hello []byte) bool {
	v, _, err := resp.Decode(hello)
	return err == nil && !dial.IsBefore72(v)
}

// readWaitRefusal reads a reply to WAIT. A server that has become a replica cannot carry it out; its successor may.
func readWaitRefusal(reply []byte) topology.Refusal {
	inReplica := []byte(" cannot be used with replica instances")
	if bytes.HasPrefix(reply, []byte("-ERR WAIT")) && bytes.Contains(reply, inReplica) {
		return topology.Refusal{Reason: topology.TryLate}
	}
	return topology.ReadRefusal(reply)
}

// answered takes a server's reply. done: it returns the reply to the client. Otherwise the next server is to be asked.
//
// A server that has taken no mark counts too many replicas. Then its refusal of the mark is the reply.
func (r *waitRound) answered(reply []byte) (joined []byte, done bool) {
	if reply[0] == '-' {
		return reply, true
	}
	if r.byWrite && !r.marked && r.refusal != nil {
		return r.refusal, true
	}
	r.replies = append(r.replies, bytes.Clone(reply))
	if r.nodes = r.nodes[1:]; len(r.nodes) > 0 {
		return nil, false
	}
	return leastOf(r.replies), true
}

// leastOf is the smallest of the replies, number by number.
func leastOf(replies [][]byte) []byte {
	if len(replies) == 1 {
		return replies[0]
	}
	first, _, err := resp.Decode(replies[0])
	if err != nil {
		return replies[0]
	}
	for _, other := range replies[1:] {
		v, _, err := resp.Decode(other)
		if err != nil || len(v.Elems) != len(first.Elems) {
			return other
		}
		first.Int = min(first.Int, v.Int)
		for i := range first.Elems {
			first.Elems[i].Int = min(first.Elems[i].Int, v.Elems[i].Int)
		}
	}
	if replies[0][0] == ':' {
		return resp.AppendInteger(nil, int(first.Int))
	}
	b := resp.AppendHeader(nil, '*', len(first.Elems))
	for _, e := range first.Elems {
		b = resp.AppendInteger(b, int(e.Int))
	}
	return b
}

// firstOfRound is the server for a WAIT.
func (s *Session) firstOfRound(r *request) upstream.Node {
	if r.round != nil {
		return r.round.at()
	}
	if list := s.writtenTo(); len(list) > 0 {
		return list[0]
	}
	return s.serverOf(r)
}

// countReplicas sends WAIT or WAITAOF on the pin, and in a cluster then to the next server to which the session has
// written.
func (s *Session) countReplicas(r *request) bool {
	pin := s.pin
	if s.clustered() && !s.awaitQuiet() {
		return false
	}
	round := r.round
	if round == nil {
		nodes := []upstream.Node{pin.conn.At()}
		if s.clustered() && !pin.tx.watching && !pin.keep {
			nodes = append(nodes, slices.DeleteFunc(s.writtenTo(), func(at upstream.Node) bool { return at == nodes[0] })...)
		}
		round = beginWait(r.args, nodes, s.clustered())
	}
	r.keep()
	for i, mark := range waitMarks {
		r.forward(mark, &reply.Reply{Session: s, Muted: true, Whole: true, Done: func(reply []byte) { round.mark(i, reply) }})
	}
	r.round = nil
	pin.fresh = false
	pin.tx.queued += len(waitMarks) + 1
	waits := s.clustered() // else the session may wait for the reply to a later command
	if waits {
		s.wait = waitReply
	}
	var joined []byte
	h := &reply.Reply{Session: s, Muted: r.muted, Whole: true, Done: func(reply []byte) {
		if waits {
			s.Resume()
		}
		var done bool
		if joined, done = round.answered(reply); done {
			return
		}
		s.repeated, r.round = r, round
		pin.yield()
	}, Replace: func([]byte) []byte { return joined }}
	to := reply.Handler(h)
	if waits {
		to = pin.rerouted(r, -1, readWaitRefusal, h)
	}
	r.forward(round.command(r.args, r.raw), to)
	return true
}
