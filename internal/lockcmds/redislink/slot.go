package redislink

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// slotNode is the Node of one hash slot of a cluster.
type slotNode struct {
	c    *Cluster
	slot int
}

// hops bounds the redirections that one call follows.
const hops = 4

var (
	errNobody    = fmt.Errorf("no server of the cluster is known for the slot: %w", ErrUnsent)
	errRedirects = fmt.Errorf("the servers redirect to each other, or to an unknown one: %w", ErrUnsent)
)

// refusal is what a cluster means by an error; not refused: the server has not sent it, or for another reason.
func refusal(err error) topology.Refusal {
	var text Refusal
	errors.As(err, &text)
	return topology.ReadRefusal([]byte("-" + string(text) + "\r\n"))
}

// owner is the server that has the slot by the present view; nil: none, which is a reason to look anew.
func (n slotNode) owner() *topology.ClusterNode {
	owner := n.c.fleet.View().Owner(n.slot)
	if owner == nil {
		n.c.fleet.Refresh(topology.Any, nil)
	}
	return owner
}

// route makes a call at the server of the slot. If that refuses it, and names another server of the view, the call is
// made there, because it has not run.
func (n slotNode) route(ctx context.Context, call func(ctx context.Context, s *server, asking bool) error) error {
	fleet := n.c.fleet
	view, owner, asking := fleet.View(), n.owner(), false
	if owner == nil {
		return errNobody
	}
	for range hops {
		s := n.c.server(topology.Node(owner.ID))
		if s == nil {
			return errClosed
		}
		err := s.guard(ctx, func(ctx context.Context) error { return call(ctx, s, asking) })
		if errors.Is(err, ErrUnsent) || errors.Is(err, context.DeadlineExceeded) {
			fleet.Refresh(topology.Any, nil) // nothing announces that a server was stopped, and another promoted
			return err
		}
		why := refusal(err)
		switch {
		case !why.Concerns(n.slot):
			return err
		case why.Reason == topology.TryLate:
			fleet.Refresh(s.at, nil)
			return err
		}
		asking = why.Reason == topology.Asking
		if owner = view.Named(why, s.at); owner == nil {
			fleet.Refresh(s.at, nil)
			return errRedirects
		}
		if !asking {
			fleet.Refresh(topology.Node(owner.ID), nil)
		}
	}
	return errRedirects
}

// Eval implements Node.
func (n slotNode) Eval(ctx context.Context, script Script, keys, args []string) (v resp.Value, err error) {
	err = n.route(ctx, func(ctx context.Context, s *server, asking bool) (err error) {
		if asking {
			v, err = s.Ask(ctx, script, keys, args)
		} else {
			v, err = s.Eval(ctx, script, keys, args)
		}
		if v.IsError() {
			return Refusal(v.Str)
		}
		return err
	})
	if isAnswer(err) {
		err = nil
	}
	return v, err
}

// List implements Node.
func (n slotNode) List(ctx context.Context, key string, most int) (list []string, err error) {
	err = n.route(ctx, func(ctx context.Context, s *server, asking bool) (err error) {
		if asking { // a key that is being moved is not looked at
			return fmt.Errorf("the list is being moved: %w", ErrUnsent)
		}
		list, err = s.List(ctx, key, most)
		return err
	})
	return list, err
}

// Publish implements Node.
func (n slotNode) Publish(ctx context.Context, messages []Message) error {
	return n.route(ctx, func(ctx context.Context, s *server, _ bool) error { return s.Publish(ctx, messages) })
}

// Server implements Node: it is the owner of the slot by the present view.
func (n slotNode) Server() Server {
	if owner := n.owner(); owner != nil {
		if s := n.c.server(topology.Node(owner.ID)); s != nil {
			return s
		}
	}
	return nowhere{}
}

// nowhere is the Server of a slot without an owner.
type nowhere struct{}

// Confirm implements Server.
func (nowhere) Confirm(func(Confirmation) error) error { return errNobody }

// Subscribe implements Node.
func (n slotNode) Subscribe(channel string) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.placeLocked(channel, true)
}

// Unsubscribe implements Node.
func (n slotNode) Unsubscribe(channel string) { n.c.leave(channel) }

var _ Node = slotNode{}
