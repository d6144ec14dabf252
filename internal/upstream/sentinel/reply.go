package sentinel

import (
	"errors"
	"iter"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Answer is what one Sentinel says about the primary.
type Answer struct {
	Epoch int64  // of its configuration
	Addr  string // host:port, as announced
	// DownAfter is the time after which it takes a silent primary for down.
	DownAfter time.Duration
	// Replicas is how many replicas it knows. It forgets none by itself.
	Replicas int
	// Others are the addresses of the replicas, as announced, if it tells them.
	Others []string
}

// candidate reads a message about a replica of a primary with a name: slave NAME IP PORT @ PRIMARY IP PORT.
func candidate(message, name string) (replica, primary string, ok bool) {
	words := strings.Fields(message)
	if len(words) != 8 || words[0] != "slave" || words[4] != "@" || words[5] != name {
		return "", "", false
	}
	return net.JoinHostPort(words[2], words[3]), net.JoinHostPort(words[6], words[7]), true
}

// Names reports whether a message is about a primary.
func Names(message, primary string) bool {
	for word := range strings.FieldsSeq(message) {
		if word == primary {
			return true
		}
	}
	return false
}

// errUnknownName is a Sentinel's answer about a name that it does not know.
var errUnknownName = errors.New("it knows no primary of this name")

// readAnswer reads the replies to a question that are about the primary and its replicas. A Sentinel may refuse to tell
// the replicas.
func readAnswer(master, addr, replicas resp.Value) (Answer, error) {
	if master.IsError() {
		if strings.Contains(string(master.Str), "No such master") {
			return Answer{}, errUnknownName
		}
		return Answer{}, &dial.RefusedError{Reply: string(master.Str)}
	}
	if len(addr.Elems) != 2 {
		return Answer{}, errUnknownName
	}
	a := Answer{Addr: net.JoinHostPort(string(addr.Elems[0].Str), string(addr.Elems[1].Str))}
	known := false
	for i := 0; i+1 < len(master.Elems); i += 2 {
		n, err := strconv.ParseInt(string(master.Elems[i+1].Str), 10, 64)
		switch name := string(master.Elems[i].Str); {
		case err != nil:
		case name == "config-epoch":
			a.Epoch, known = n, true
		case name == "num-slaves":
			a.Replicas = int(n)
		case name == "down-after-milliseconds":
			a.DownAfter = time.Duration(n) * time.Millisecond
		}
	}
	if !known {
		return Answer{}, errors.New("its answer has no config-epoch: it is no Sentinel")
	}
	for row := range answerRows(replicas) {
		if announced, ok := row.addr(); ok {
			a.Others = append(a.Others, announced)
		}
	}
	return a, nil
}

// mostListed bounds the entries of a list that are read.
const mostListed = 64

// answerRow is an entry of a list, by field.
type answerRow map[string]string

// answerRows reads a list of servers or Sentinels.
func answerRows(list resp.Value) iter.Seq[answerRow] {
	return func(yield func(answerRow) bool) {
		for _, entry := range list.Elems[:min(len(list.Elems), mostListed)] {
			r := answerRow{}
			for i := 0; i+1 < len(entry.Elems); i += 2 {
				r[string(entry.Elems[i].Str)] = string(entry.Elems[i+1].Str)
			}
			if !yield(r) {
				return
			}
		}
	}
}

// addr is the announced host:port.
func (r answerRow) addr() (addr string, ok bool) {
	n, err := strconv.ParseUint(r["port"], 10, 16)
	return net.JoinHostPort(r["ip"], r["port"]), err == nil && n != 0 && r["ip"] != ""
}

// quietFor is the time after which a Sentinel that tells the others nothing of the primary counts as one that does not
// watch it any more. Sentinels do so every two seconds, and never forget each other by themselves.
const quietFor = 30 * time.Second

// Peers reads the reply that lists the other Sentinels of a primary. A Sentinel may refuse to tell them.
func Peers(list resp.Value, reach topology.AddressMap) (all []Peer) {
	for row := range answerRows(list) {
		announced, ok := row.addr()
		ago, err := strconv.ParseInt(row["last-hello-message"], 10, 64)
		if !ok || err == nil && ago > quietFor.Milliseconds() {
			continue
		}
		down := strings.Contains(row["flags"], "s_down") || strings.Contains(row["flags"], "disconnected")
		all = append(all, Peer{ID: row["runid"], Addr: reach.Of(announced), Down: down})
	}
	return all
}

// ID reads the id that a Sentinel has given itself. Redis before 6.2 does not tell it.
func ID(reply resp.Value) string {
	if reply.IsError() {
		return ""
	}
	return string(reply.Str)
}
