package sentinel

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// answer is what one Sentinel says about the primary.
type answer struct {
	epoch     int64         // of its configuration
	addr      string        // host:port
	downAfter time.Duration // after which it takes a silent primary for down
	replicas  int           // that it knows. It forgets none by itself
}

// isAbout reports whether the message of an event is about a primary.
func isAbout(message, primary string) bool {
	for word := range strings.FieldsSeq(message) {
		if word == primary {
			return true
		}
	}
	return false
}

// candidate reads a message about a replica of a primary: slave NAME IP PORT @ PRIMARY IP PORT.
func candidate(message string) (p promotion, ok bool) {
	words := strings.Fields(message)
	if len(words) != 8 || words[0] != "slave" {
		return promotion{}, false
	}
	return promotion{net.JoinHostPort(words[2], words[3]), net.JoinHostPort(words[6], words[7])}, true
}

// errUnknownName is a Sentinel's answer about a name that it does not know.
var errUnknownName = errors.New("it knows no primary of this name")

// readAnswer reads the replies to a question.
func readAnswer(master, addr resp.Value) (answer, error) {
	if master.IsError() {
		if strings.Contains(string(master.Str), "No such master") {
			return answer{}, errUnknownName
		}
		return answer{}, &dial.RefusedError{Reply: string(master.Str)}
	}
	if len(addr.Elems) != 2 {
		return answer{}, errUnknownName
	}
	a := answer{addr: net.JoinHostPort(string(addr.Elems[0].Str), string(addr.Elems[1].Str))}
	known := false
	for i := 0; i+1 < len(master.Elems); i += 2 {
		n, err := strconv.ParseInt(string(master.Elems[i+1].Str), 10, 64)
		switch name := string(master.Elems[i].Str); {
		case err != nil:
		case name == "config-epoch":
			a.epoch, known = n, true
		case name == "num-slaves":
			a.replicas = int(n)
		case name == "down-after-milliseconds":
			a.downAfter = time.Duration(n) * time.Millisecond
		}
	}
	if !known {
		return answer{}, errors.New("its answer has no config-epoch: it is no Sentinel")
	}
	return a, nil
}
