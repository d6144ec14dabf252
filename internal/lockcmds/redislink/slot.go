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

// refusal is what a cluster means by an error reply.
func refusal(text Refusal) topology.Refusal {
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

// Eval implements Node.
func (n slotNode) Eval(ctx context.Context, script Script, keys, args []string) (resp.Value, error) {
	return n.route(ctx, func(ctx context.Context, s *server, asking bool) (resp.Value, error) {
		if asking {
			return s.Ask(ctx, script, keys, args)
		}
		return s.Eval(ctx, script, keys, args)
	})
}

// route makes a call at the server of the slot. If that refuses it, and names another server of the view, the call is
// made there, because it has not run.
func (n slotNode) route(
	ctx context.Context, call func(ctx context.Context, s *server, asking bool) (resp.Value, error),
) (v resp.Value, err error) {
	fleet := n.c.fleet
	view, owner, asking := fleet.View(), n.owner(), false
	if owner == nil {
		return v, errNobody
	}
	for range hops {
		s := n.c.server(topology.Node(owner.ID))
		if s == nil {
			return v, errClosed
		}
		err = s.guard(ctx, func(ctx context.Context) (err error) {
			v, err = call(ctx, s, asking)
			return err
		})
		if errors.Is(err, ErrUnsent) || errors.Is(err, context.DeadlineExceeded) {
			fleet.Refresh(topology.Any, nil) // nothing announces that a server was stopped, and another promoted
		}
		if err != nil || !v.IsError() {
			return v, err
		}
		why := refusal(Refusal(v.Str))
		switch {
		case !why.Concerns(n.slot):
			return v, nil
		case why.Reason == topology.TryLate:
			fleet.Refresh(s.at, nil)
			return v, nil
		}
		asking = why.Reason == topology.Asking
		if owner = view.Named(why, s.at); owner == nil {
			fleet.Refresh(s.at, nil)
			break
		}
		if !asking {
			fleet.Refresh(topology.Node(owner.ID), nil)
		}
	}
	return resp.Value{}, errRedirects
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
