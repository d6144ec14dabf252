package redislink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	errClusterClosed = fmt.Errorf("client is closed: %w", ErrUnsent)
	errNobody        = fmt.Errorf("no server of the cluster is known for the slot: %w", ErrUnsent)
	errRedirects     = fmt.Errorf("the servers redirect to each other, or to an unknown one: %w", ErrUnsent)
)

// passes reports whether a server of a cluster has refused something only for now, or for another server's sake.
func passes(why Refusal) bool { return refusal(why).Reason != topology.NotRefused }

func refusal(text Refusal) topology.Refusal {
	return topology.ReadRefusal([]byte("-" + string(text) + "\r\n"))
}

// route makes a call at the server of the slot. call returns Redis's refusal, which may name another server. If that is
// a server of the view, the call is made there, because it has not run. It leaves its result to call.
func (n slotNode) route(
	ctx context.Context, call func(ctx context.Context, s *server, asking bool) (Refusal, error),
) error {
	fleet := n.c.opts.Fleet
	view := fleet.View()
	owner, asking := view.Owner(n.slot), false
	if owner == nil {
		fleet.Refresh(topology.Any, nil)
		return errNobody
	}
	for range hops {
		s := n.c.server(topology.Node(owner.ID))
		if s == nil {
			return errClusterClosed
		}
		var text Refusal
		err := s.guard(ctx, func(ctx context.Context) (err error) {
			text, err = call(ctx, s, asking)
			return err
		})
		if err != nil {
			if errors.Is(err, ErrUnsent) || errors.Is(err, context.DeadlineExceeded) {
				fleet.Refresh(topology.Any, nil) // nothing announces that a server was stopped, and another promoted
			}
			return err
		}
		why := refusal(text)
		switch {
		case !why.Concerns(n.slot):
			return nil
		case why.Reason == topology.TryLate:
			fleet.Refresh(s.at, nil)
			return nil
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
	err = n.route(ctx, func(ctx context.Context, s *server, asking bool) (why Refusal, err error) {
		if asking {
			v, err = s.Ask(ctx, script, keys, args)
		} else {
			v, err = s.Eval(ctx, script, keys, args)
		}
		if v.IsError() {
			why = Refusal(v.Str)
		}
		return why, err
	})
	return v, err
}

// List implements Node.
func (n slotNode) List(ctx context.Context, key string, most int) (list []string, err error) {
	var refused Refusal
	err = n.route(ctx, func(ctx context.Context, s *server, asking bool) (Refusal, error) {
		if asking { // a key that is being moved is not looked at
			return "", fmt.Errorf("the list is being moved: %w", ErrUnsent)
		}
		var err error
		list, err = s.List(ctx, key, most)
		if refused = ""; errors.As(err, &refused) {
			err = nil
		}
		return refused, err
	})
	if err == nil && refused != "" {
		err = refused
	}
	return list, err
}

// Publish implements Node.
func (n slotNode) Publish(ctx context.Context, messages []Message) error {
	return n.route(ctx, func(ctx context.Context, s *server, _ bool) (Refusal, error) {
		return "", s.Publish(ctx, messages)
	})
}

// Server implements Node: it is the owner of the slot by the present view.
func (n slotNode) Server() Server {
	fleet := n.c.opts.Fleet
	owner := fleet.View().Owner(n.slot)
	if owner == nil {
		fleet.Refresh(topology.Any, nil)
		return home{}
	}
	return home{n.c.server(topology.Node(owner.ID)), fleet}
}

// home is the Server of the slots that are at one server. Without a server it stands for an unknown one.
type home struct {
	*server
	fleet Fleet
}

// Confirm implements Server. If a slot has moved, the answers for its keys say so.
func (h home) Confirm(f func(Confirmation) error) error {
	if h.server == nil {
		return errNobody
	}
	err := h.server.Confirm(func(conn Confirmation) error { return f(observed{conn, h}) })
	if errors.Is(err, ErrUnsent) {
		h.fleet.Refresh(topology.Any, nil)
	}
	return err
}

// observed is a connection whose answers may be signs of a change.
type observed struct {
	Confirmation
	home home
}

func (o observed) Write(
	ctx context.Context, calls []Call, replicas int, limit time.Duration,
) (answers []resp.Value, have int, err error) {
	answers, have, err = o.Confirmation.Write(ctx, calls, replicas, limit)
	if slices.ContainsFunc(answers, func(v resp.Value) bool { return v.IsError() && passes(Refusal(v.Str)) }) {
		o.home.fleet.Refresh(o.home.at, nil)
	}
	return answers, have, err
}

// Subscribe implements Node.
func (n slotNode) Subscribe(channel string) { n.c.place(channel, wanted) }

// Unsubscribe implements Node.
func (n slotNode) Unsubscribe(channel string) { n.c.leave(channel) }

var _ Node = slotNode{}
