package session

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// unblock goes on with Redis's answer to CLIENT UNBLOCK, which does not know the clients of the proxy.
func (q *Inquiry) unblock(reply []byte) {
	if reply[0] != ':' {
		q.Answer(reply)
		return
	}
	id, err := strconv.ParseInt(string(q.Args[0]), 10, 64)
	if err != nil || clients.Foreign(id) {
		q.Answer(reply)
		return
	}
	l, _ := q.Proxy.Clients.Get(uint64(id))
	target, ok := l.(Waiter)
	if !ok {
		q.Answer(reply)
		return
	}
	withError := command.Keyword(q.Args, 1) == "error"
	done, conn, release := target.Unblock(withError)
	switch {
	case done:
		q.Answer(oneClient)
	case conn == 0:
		q.Answer(reply)
	default:
		words := []string{"CLIENT", "UNBLOCK", strconv.FormatUint(conn, 10), "TIMEOUT"}
		if withError {
			words[3] = "ERROR"
		}
		q.After(release)
		q.Ask(q.Answer, resp.AppendCommand(nil, words...))
	}
}

var oneClient = []byte(":1\r\n")

// A Waiter is a client that may be waiting for a lock or at Redis.
type Waiter interface {
	// Unblock ends the client's wait for a lock. If it has a connection to Redis on which it may be waiting, its number is returned, and
	// the client keeps the connection until release. 0: it has none.
	Unblock(withError bool) (done bool, conn uint64, release func())
}
