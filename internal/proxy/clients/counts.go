package clients

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// sections are the names that make INFO show its section Clients.
var sections = []string{"clients", "default", "all", "everything"}

// Counted reports whether INFO with these arguments, behind its name, shows the section Clients.
func Counted(args [][]byte) bool {
	return len(args) == 0 || slices.ContainsFunc(args, func(arg []byte) bool {
		return slices.Contains(sections, strings.ToLower(string(arg)))
	})
}

// Counts is the proxy's part of the numbers in that section.
type Counts struct {
	Clients int // of the proxy, connected
	Waiting int // for locks, or behind other commands on a lane: Redis does not count them as blocked
}

// Edit puts the proxy's clients into the section Clients of a reply to INFO. All other bytes stay. Redis counts the
// clients that are blocked, track keys, are subscribed or watch, because each has a connection of its own there.
func (c Counts) Edit(reply []byte) []byte {
	text, ok := Text(reply)
	if !ok {
		return reply
	}
	const heading = "# Clients\r\n"
	at := bytes.Index(text, []byte(heading))
	if at < 0 || at > 0 && text[at-1] != '\n' {
		return reply
	}
	edited := slices.Clone(text[:at+len(heading)])
	for line := range bytes.Lines(text[at+len(heading):]) {
		name, value, _ := strings.Cut(string(line), ":")
		n, err := strconv.Atoi(strings.TrimRight(value, "\r\n"))
		switch {
		case err != nil:
		case name == "connected_clients":
			line = countLine(name, c.Clients)
		case name == "blocked_clients":
			line = countLine(name, n+c.Waiting)
		}
		edited = append(edited, line...)
	}
	return AppendText(nil, reply, edited)
}

func countLine(name string, n int) []byte { return []byte(name + ":" + strconv.Itoa(n) + "\r\n") }

// Text takes a reply apart that is a text of Redis's: a bulk string, or in RESP3 a verbatim one. ok is false if it is
// anything else: an error, QUEUED.
func Text(reply []byte) (text []byte, ok bool) {
	end := bytes.IndexByte(reply, '\n')
	if end < 2 || len(reply) < end+3 || reply[0] != '$' && reply[0] != '=' {
		return nil, false
	}
	text = reply[end+1 : len(reply)-2]
	if reply[0] == '=' {
		if len(text) < len(verbatim) {
			return nil, false
		}
		text = text[len(verbatim):]
	}
	return text, true
}

const verbatim = "txt:"

// AppendText appends a text as a reply of the same kind as like.
func AppendText(dst, like, text []byte) []byte {
	n := len(text)
	if like[0] == '=' {
		n += len(verbatim)
	}
	dst = strconv.AppendInt(append(dst, like[0]), int64(n), 10)
	dst = append(dst, "\r\n"...)
	if like[0] == '=' {
		dst = append(dst, verbatim...)
	}
	return append(append(dst, text...), "\r\n"...)
}
