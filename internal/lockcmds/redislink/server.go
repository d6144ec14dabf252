package redislink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

const (
	// answerLimit bounds one round trip to a server of a cluster. Workers that wait for a server which was stopped are
	// missing elsewhere. A renewal has a limit of its own, which is a share of its lease.
	answerLimit = time.Second
	// A server that has answered none of several calls for a while gets no further one: it may have been stopped. The
	// while is shorter for a call with less time: standstillShare of that time, which for a renewal is a third of its
	// lease.
	crowd, standstill, standstillShare = 16, 200 * time.Millisecond, 5
	// farewell is the time that a server without slots has to answer the calls that it got.
	farewell = 400 * time.Millisecond
)

var errStandstill = fmt.Errorf("the server does not answer: %w", ErrUnsent)

// server is one server of a cluster. Its subscriber runs as long as it has connections.
type server struct {
	*Client
	at topology.Node

	mu     sync.Mutex
	flying int       // calls on their way
	since  time.Time // the first of them was sent, or the latest answer came
	mute   bool      // a call was given up after it had waited for a while, and no answer has come since
}

// newServer makes a server without connections. Requires Cluster.mu.
func (c *Cluster) newServer(at topology.Node) *server {
	opts := c.opts
	opts.Addr, opts.Sharded, opts.Moved = string(at), c.fleet.Sharded, c.moved
	opts.Dial = func(ctx context.Context) (net.Conn, error) { return c.fleet.Connect(ctx, at) }
	client := New(opts)
	client.Listen(c.listener)
	c.runs.Go(func() { client.Run(client.life) })
	return &server{Client: client, at: at}
}

// guard makes a call, unless the server does not answer.
func (s *server) guard(ctx context.Context, call func(context.Context) error) error {
	begin, while := time.Now(), standstill
	if until, ok := ctx.Deadline(); ok {
		while = min(while, until.Sub(begin)/standstillShare)
	}
	s.mu.Lock()
	if s.mute && s.flying > 0 || s.flying >= crowd && begin.Sub(s.since) > while {
		s.mu.Unlock()
		return errStandstill
	}
	if s.flying++; s.flying == 1 {
		s.since = begin
	}
	s.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	err := call(limited)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		s.mute = s.mute || !s.since.After(begin) && time.Since(begin) >= while
	case err == nil:
		s.since, s.mute = time.Now(), false
	}
	return err
}
