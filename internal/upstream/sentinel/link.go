package sentinel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
)

// events are the channels of a Sentinel that tell of changes. Some messages are about other primaries. The Sentinel that
// leads a failover names the new primary from +promoted-slave on, the others from +switch-master on.
var events = []string{promoting, "+promoted-slave", "+switch-master", "+monitor", "+reset-master", "+reboot"}

// promoting is the event of the leader when it has told a replica to become the primary.
const promoting = "+failover-state-wait-promotion"

// promotion is what the leader says then.
type promotion struct{ replica, primary string } // as announced

// link is the connection to one Sentinel. It asks and hears the events on one connection, which RESP3 allows.
type link struct {
	number  int // in the order of the configuration
	addr    string
	name    string // of the primary
	connect func(ctx context.Context, addr string) (net.Conn, error)
	results chan<- result
	events  chan<- struct{}
	chosen  chan<- promotion
	trouble trouble // owned by run

	mu    sync.Mutex
	nc    net.Conn  // nil: not connected
	since time.Time // when the oldest question without an answer was asked; zero: there is none
	again bool      // another question was wanted meanwhile
}

// result of a question: an answer or an error.
type result struct {
	number int
	answer answer
	err    error
}

const (
	// answerLimit bounds the wait for an answer. A Sentinel that needs longer is stopped or cut off.
	answerLimit = 2 * time.Second
	// Pauses between attempts to connect to a Sentinel are up to a half longer, at random.
	reconnectPause = 300 * time.Millisecond
)

// run keeps the connection until ctx ends.
func (l *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.serve(ctx)
		if ctx.Err() != nil {
			return
		}
		l.trouble.failed(err)
		select {
		case l.results <- result{number: l.number, err: fmt.Errorf("sentinel %s: %w", l.addr, err)}:
		case <-ctx.Done():
		}
		select {
		case <-time.After(reconnectPause + rand.N(reconnectPause/2)):
		case <-ctx.Done():
		}
	}
}

// serve is the life of one connection.
func (l *link) serve(ctx context.Context) error {
	nc, err := l.connect(ctx, l.addr)
	if err != nil {
		return err
	}
	defer dial.Abort(nc)
	defer context.AfterFunc(ctx, func() { dial.Abort(nc) })()
	in := dial.NewReader(nc)
	if err := l.subscribe(nc, in); err != nil {
		return err
	}
	l.mu.Lock()
	l.nc, l.since, l.again = nc, time.Time{}, false
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.nc = nil
		l.mu.Unlock()
	}()
	l.ask()
	return l.read(ctx, in)
}

// subscribe asks for events. A Sentinel that refuses them is asked from time to time.
func (l *link) subscribe(nc net.Conn, in *dial.Reader) error {
	if err := l.write(nc, resp.AppendCommand(nil, append([]string{"SUBSCRIBE"}, events...)...)); err != nil {
		return err
	}
	if err := nc.SetReadDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	v, err := in.Frame()
	if err != nil {
		return err
	}
	if v.IsError() {
		l.trouble.mute(string(v.Str))
	}
	return nc.SetReadDeadline(time.Time{})
}

func (l *link) write(nc net.Conn, b []byte) error {
	if err := nc.SetWriteDeadline(time.Now().Add(answerLimit)); err != nil {
		return err
	}
	_, err := nc.Write(b)
	return err
}

// ask sends a question if none is on its way. Else it is repeated behind the answer, which may have been given before
// the reason to ask.
func (l *link) ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.nc == nil:
	case l.since.IsZero():
		l.since = time.Now()
		// They arrive together, so the Sentinel runs them one right after the other. From the promotion of a replica
		// on, the second one names it, long before the first one does.
		question := resp.AppendCommand(nil, "SENTINEL", "MASTER", l.name)
		question = resp.AppendCommand(question, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", l.name)
		if l.write(l.nc, question) != nil {
			dial.Abort(l.nc) // ends the reader
		}
	case time.Since(l.since) > answerLimit:
		dial.Abort(l.nc)
	default:
		l.again = true
	}
}

// answered ends a question, and reports whether another one is wanted.
func (l *link) answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.again
	l.since, l.again = time.Time{}, false
	return again
}

// read hands on the Sentinel's replies and messages.
func (l *link) read(ctx context.Context, in *dial.Reader) error {
	for {
		master, err := l.reply(in)
		if err != nil {
			return err
		}
		addr, err := l.reply(in)
		if err != nil {
			return err
		}
		again := l.answered()
		r := result{number: l.number}
		if r.answer, err = readAnswer(master, addr); err != nil {
			r.err = fmt.Errorf("sentinel %s: %w", l.addr, err)
		}
		l.trouble.over(err)
		select {
		case l.results <- r:
		case <-ctx.Done():
			return ctx.Err()
		}
		if again {
			l.ask()
		}
	}
}

// reply returns the next reply. Events ask for another look.
func (l *link) reply(in *dial.Reader) (resp.Value, error) {
	for {
		v, err := in.Frame()
		if err != nil {
			return v, err
		}
		if v.Kind != resp.Push {
			return v, nil
		}
		if len(v.Elems) != 3 || string(v.Elems[0].Str) != "message" {
			continue
		}
		event, message := string(v.Elems[1].Str), string(v.Elems[2].Str)
		if !isAbout(message, l.name) {
			continue
		}
		if p, ok := candidate(message); ok && event == promoting {
			select {
			case l.chosen <- p:
			default: // it is known
			}
		} else {
			select {
			case l.events <- struct{}{}:
			default:
			}
		}
	}
}

// trouble logs once that a Sentinel cannot be asked, when the cause changes, and when it is over.
type trouble struct {
	log      *zap.Logger // with the Sentinel's address
	cause    string      // "": there is none
	fine     bool        // the present connection has brought an answer
	silent   bool        // it has refused to tell events
	ignorant bool        // it does not know the primary
}

// failed notes why a connection was not made, or has ended.
func (t *trouble) failed(err error) {
	if t.fine { // the next attempt to connect says more
		t.fine = false
		t.log.Debug("the connection to a sentinel has ended", zap.Error(err))
		return
	}
	cause, write := "a sentinel cannot be reached", t.log.Warn
	if dial.IsLasting(err) {
		cause = "a sentinel refuses the proxy's connection: see sentinel.user, sentinel.password and sentinel.tls"
		write = t.log.Error
	}
	if cause == t.cause {
		write = t.log.Debug
	}
	t.cause = cause
	write(cause, zap.Error(err))
}

// over notes that the Sentinel has answered, with an error or without.
func (t *trouble) over(err error) {
	if t.cause != "" {
		t.log.Info("a sentinel answers again")
	}
	t.cause, t.fine = "", true
	ignorant := errors.Is(err, errUnknownName)
	if ignorant && !t.ignorant {
		t.log.Warn("a sentinel does not know the primary", zap.Error(err))
	}
	t.ignorant = ignorant
}

// mute notes that the Sentinel refuses to tell events. It is asked from time to time.
func (t *trouble) mute(reply string) {
	if !t.silent {
		t.log.Warn("a sentinel tells no events", zap.String("reply", reply))
	}
	t.silent = true
}
