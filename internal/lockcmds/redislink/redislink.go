// Package redislink is the lock engine's own way to Redis: scripts for waiters, renewals and clean-up, and the
// subscriptions of waiters. It alone imports the Redis client library. The engine sees interfaces without any type of
// that library, so a test can put a model of Redis in its place.
//
//	engine ── Topology.Node(key) ──► Node.Eval ──► one connection for commands
//	                                 Node.Server ──► Server.Confirm ──► connections that wait for replicas
//	                                 Node.Subscribe, Unsubscribe ──► one connection for subscriptions
//	engine ◄── Listener.Confirmed, Published, Refused ◄──┘ Topology.Run keeps it
//
// A script is never repeated by this package: the engine decides that, because it knows what a repetition means.
//
// Pipelines, pools of connections and connecting anew are the library's. Not left to it are the bytes of Redis (checked),
// the way through a cluster (slotNode) and subscriptions that last (subscriber); docs/dev/DECISIONS.md says why.
package redislink

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// Errors of a command whose answer is not known.
var (
	// ErrUnsent says that the command was never sent: nothing has happened.
	ErrUnsent = errors.New("not sent")
	// ErrInDoubt says that the command may have been sent, and the connection or the time was over before the answer.
	ErrInDoubt = errors.New("sent, but not answered")

	errClosed = fmt.Errorf("client is closed: %w", ErrUnsent)
)

// Topology is the servers that keep the locks: a Client is one server; Cluster is many.
type Topology interface {
	// Servers is what the scripts must know of the servers.
	Servers() script.Servers
	// Node is the server that keeps the lock at key, with the other keys and channels of that lock.
	Node(key string) Node
	// Listen names the receiver of news about subscriptions. It is called once, before the first Subscribe.
	Listen(l Listener)
	// Run keeps the subscriptions until ctx ends. Close follows.
	Run(ctx context.Context)
	// Close ends all connections and subscriptions. Commands on their way fail.
	Close()
}

// Node is where the keys of a lock are: one server, or one hash slot. Nodes may be compared: a batch of commands may be
// sent as one if it is for one node.
type Node interface {
	// Eval runs a script and returns Redis's reply, which may be an error reply. It waits for the reply until the
	// deadline of ctx, and for AnswerLimit at most. An error wraps ErrUnsent or ErrInDoubt.
	Eval(ctx context.Context, s Script, keys, args []string) (resp.Value, error)
	// Server is the server that this is at present. Many nodes of a cluster may be at one.
	Server() Server
	// Subscribe wants a channel. Listener.Confirmed follows now and after each new connection, until Unsubscribe. It
	// does not block.
	Subscribe(channel string)
	// Unsubscribe gives a channel up. It does not block. A call to Listener about it may still be on its way.
	Unsubscribe(channel string)
}

// Server is one process of Redis. Servers may be compared: a connection to one serves all nodes that are there.
type Server interface {
	// Confirm runs f with a connection that waits for replicas, and returns its error. f must not keep the connection.
	Confirm(f func(Confirmation) error) error
}

// Listener hears of subscriptions. Its methods are called one at a time for one node, and must not block.
type Listener interface {
	// Confirmed says that from now on messages of the channel arrive. Messages may have been missed before.
	Confirmed(channel string)
	// Published says that there was a message.
	Published(channel, text string)
	// Refused says that Redis does not let us listen. The channel counts as given up.
	Refused(channel string, reason Refusal)
}

// Script is a Lua script. Its SHA is 40 lower-case hexadecimal digits.
type Script interface {
	Text() string
	SHA() string
}

// Refusal is an error reply of Redis, to be passed on as it is.
type Refusal = script.Error
