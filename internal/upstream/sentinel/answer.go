package sentinel

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/address"
	"github.com/lockproxy/lockproxy/internal/upstream/handshake"
	"github.com/lockproxy/lockproxy/internal/upstream/roster"
)

// Answer is what one Sentinel says about the primary.
type Answer struct {
	Epoch int64  // of its configuration
	Addr  string // host:port, as announced
	// DownAfter is the time after which it takes a silent primary for down.
	DownAfter time.Duration
	// Replicas is how many replicas it knows. It forgets none by itself.
	Replicas int
	// Sentinels is how many Sentinels there are by its word, with itself. It forgets none by itself. 0: it does not say.
	Sentinels int
}

// candidate reads the replica out of a message about a replica of a primary: slave NAME IP PORT @ PRIMARY IP PORT.
func candidate(message, primary string) (addr string, ok bool) {
	words := strings.Fields(message)
	if len(words) != 8 || words[0] != "slave" || words[4] != "@" || words[5] != primary {
		return "", false
	}
	return net.JoinHostPort(words[2], words[3]), true
}

// names reports whether a message is about a primary.
func names(message, primary string) bool {
	for word := range strings.FieldsSeq(message) {
		if word == primary {
			return true
		}
	}
	return false
}

// errUnknownName is a Sentinel's answer about a name that it does not know.
var errUnknownName = errors.New("it knows no primary of this name")

// parse reads the two replies to a question.
func parse(master, addr resp.Value) (Answer, error) {
	if master.IsError() {
		if strings.Contains(string(master.Str), "No such master") {
			return Answer{}, errUnknownName
		}
		return Answer{}, &handshake.RefusedError{Reply: string(master.Str)}
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
		case name == "num-other-sentinels":
			a.Sentinels = int(n) + 1
		case name == "down-after-milliseconds":
			a.DownAfter = time.Duration(n) * time.Millisecond
		}
	}
	if !known {
		return Answer{}, errors.New("its answer has no config-epoch: it is no Sentinel")
	}
	return a, nil
}

// mostListed bounds the entries of a list of Sentinels that are read.
const mostListed = 64

// peers reads the reply that lists the other Sentinels of a primary. A Sentinel may refuse to tell them.
func peers(list resp.Value, reach address.Map) (all []roster.Peer) {
	for _, entry := range list.Elems[:min(len(list.Elems), mostListed)] {
		var host, port string
		var p roster.Peer
		for i := 0; i+1 < len(entry.Elems); i += 2 {
			switch text := string(entry.Elems[i+1].Str); string(entry.Elems[i].Str) {
			case "ip":
				host = text
			case "port":
				port = text
			case "runid":
				p.ID = text
			case "flags":
				p.Down = strings.Contains(text, "s_down") || strings.Contains(text, "disconnected")
			}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
			continue
		}
		p.Addr = reach.Of(net.JoinHostPort(host, port))
		all = append(all, p)
	}
	return all
}

// idOf reads the id that a Sentinel has given itself. Redis before 6.2 does not tell it.
func idOf(reply resp.Value) string {
	if reply.IsError() {
		return ""
	}
	return string(reply.Str)
}
