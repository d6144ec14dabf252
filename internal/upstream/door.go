package upstream

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream/dial"
	"lockproxy/internal/upstream/questions"
)

// door finds out whether Redis accepts connections without credentials. On a direct connection Redis decides that when the client
// connects, and it announces no change. A shared connection that was accepted says nothing about a later client, so Redis is asked for each
// client. Clients that come while one question is on its way share the next one.
//
// RESET brings a connection back to the state of a new one, so one connection serves for all questions.
type door struct {
	mu    sync.Mutex
	queue []func(era uint64) // the callers since the latest question
	busy  bool               // a session asks
	era   uint64             // the number of times that the door was found shut after it had been open
	shut  bool               // when Redis was last asked

	nc net.Conn // owned by the goroutine that has set busy; nil: none
}

// doorLimit bounds one question. After that the last known answer stands.
const doorLimit = 3 * time.Second

// Knock finds out whether Redis now serves a new connection without credentials. It calls told from another goroutine when lanes and pins
// without credentials have the same rights. Clients without credentials to which
// another era was told have other rights.
func (u *Upstream) Knock(told func(era uint64)) {
	u.mu.Lock()
	closed := u.closed
	u.mu.Unlock()
	d := &u.door
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue = append(d.queue, told)
	if d.busy || closed {
		return
	}
	d.busy = true
	u.wg.Go(u.answerDoor)
}

// answerDoor asks as long as there are calls of Knock to answer.
func (u *Upstream) answerDoor() {
	ctx, cancel := dial.UntilClosed(u.over)
	defer cancel()
	d := &u.door
	for {
		d.mu.Lock()
		queue := d.queue
		d.queue = nil
		d.busy = len(queue) > 0
		d.mu.Unlock()
		if len(queue) == 0 {
			return
		}
		shut, err := u.askDoor(ctx)
		if err == nil {
			u.sawDoor(shut)
		}
		d.mu.Lock()
		era := d.era
		d.mu.Unlock()
		for _, told := range queue {
			told(era)
		}
	}
}

var (
	resetPing = append(resp.AppendCommand(nil, "RESET"), resp.AppendCommand(nil, "PING")...)
	wasReset  = []byte("+RESET")
)

// askDoor reports whether Redis demands credentials of a new connection.
func (u *Upstream) askDoor(ctx context.Context) (shut bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, doorLimit)
	defer cancel()
	d := &u.door
	if d.nc != nil {
		if shut, err = askReset(ctx, d.nc); err == nil {
			return shut, nil
		}
		u.dialer.HangUp(d.nc)
		d.nc = nil
	}
	nc, err := u.dialer.Dial(ctx, dial.Target{At: u.servers.For(nil), ID: Identity{Proto: 2}})
	if err != nil {
		return false, err
	}
	if shut, err = askReset(ctx, nc); err == nil {
		d.nc = nc
		return shut, nil
	}
	u.dialer.HangUp(nc)
	return u.asker.NeedsAuth(ctx) // a Redis without RESET
}

// askReset asks on a connection that has been used before.
func askReset(ctx context.Context, nc net.Conn) (shut bool, err error) {
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := nc.Write(resetPing); err != nil {
		return false, err
	}
	rd := dial.NewReader(nc)
	b, err := rd.Raw()
	if err != nil {
		return false, err
	}
	if !bytes.HasPrefix(b, wasReset) {
		return false, &dial.RefusedError{Reply: string(bytes.TrimSpace(b))}
	}
	b, err = rd.Raw()
	return questions.IsNoAuth(b), err
}

// sawDoor notes what Redis does with connections without credentials. Connections that were accepted serve the sessions from
// before the door was shut, and no others.
func (u *Upstream) sawDoor(shut bool) {
	u.door.mu.Lock()
	was := u.door.shut
	u.door.shut = shut
	if shut && !was {
		u.door.era++
	}
	u.door.mu.Unlock()
	u.guarded.Store(shut)
	if shut && !was {
		u.retireOpen()
		u.pins.DropBare()
	}
}

// closeDoor is called when no session asks any more.
func (u *Upstream) closeDoor() {
	if u.door.nc != nil {
		u.dialer.HangUp(u.door.nc)
		u.door.nc = nil
	}
}
