package lockcmds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// askedReplicas is a grant of a round without an outcome.
type askedReplicas struct {
	wanted
	have int // replicas that have it for certain
}

// ask is one round. It tells the outcomes of the grants that have one, and returns the others. early: the server has
// not let the round wait.
func (c *confirmer) ask(at lineName, grants []wanted) (rest []askedReplicas, early bool) {
	limit := quickLimit
	if at.patient {
		limit = patientLimit
	}
	now := c.clock.Now()
	end := now.Add(limit)
	for _, g := range grants {
		if g.Until.Before(end) {
			end = g.Until
		}
		rest = append(rest, askedReplicas{wanted: g})
	}
	// A grant whose time is over already, because the round before it was long, is asked for once all the same.
	if least := now.Add(leastLimit); end.Before(least) {
		end = least
	}
	slices.SortStableFunc(rest, func(a, b askedReplicas) int { return a.Replicas - b.Replicas })
	ctx, cancel := context.WithDeadline(c.life, end.Add(answerSlack))
	defer cancel()
	err := at.server.Confirm(func(conn redislink.Confirmation) (err error) {
		rest, err = c.askOn(ctx, at.server, conn, rest, end)
		return err
	})
	if refusal := finalOf(err); refusal != nil {
		for _, g := range rest {
			c.done(g.unconfirmedGrant, confirmation{Refused: refusal})
		}
		return nil, true
	}
	return rest, err != nil || len(rest) > 0 && c.clock.Now().Before(end)
}

// leastLimit is the shortest time for a WAIT.
const leastLimit = 5 * time.Millisecond

// askOn asks on one connection. all is in the order of the numbers of replicas.
func (c *confirmer) askOn(
	ctx context.Context, at redislink.Server, conn redislink.Confirmation, all []askedReplicas, end time.Time,
) (rest []askedReplicas, err error) {
	calls := make([]redislink.Call, len(all))
	for i, g := range all {
		calls[i] = redislink.Call{Script: g.Proof.Script, Keys: g.Proof.Keys, Args: g.Proof.Args}
	}
	answers, have, err := conn.Write(ctx, calls, all[0].Replicas, end.Sub(c.clock.Now()))
	if err != nil {
		return all, err
	}
	written, unwritten := c.sort(all, answers)
	for {
		n := 0 // the order is that of the numbers
		for n < len(written) && written[n].Replicas <= have {
			if g := written[n]; g.node.Server() == at {
				c.done(g.unconfirmedGrant, confirmation{Confirmed: true})
			} else { // the replicas of the server that has the slot now may not have it
				unwritten = append(unwritten, g)
			}
			n++
		}
		written = written[n:]
		if len(written) == 0 {
			return unwritten, nil
		}
		for i := range written {
			written[i].have = have
		}
		next, left := written[0].Replicas, end.Sub(c.clock.Now())
		if left > 0 {
			have, err = conn.Wait(ctx, next, left)
		}
		if err != nil || left <= 0 || have < next {
			return append(written, unwritten...), err
		}
	}
}

// sort tells the outcomes of the grants that are not at the server, and parts those that it has written from those that
// it may write later.
func (c *confirmer) sort(all []askedReplicas, answers []resp.Value) (written, unwritten []askedReplicas) {
	for i, g := range all {
		here, err := script.DecodeDone(answers[i])
		switch refusal := finalOf(err); {
		case refusal != nil:
			c.done(g.unconfirmedGrant, confirmation{Refused: refusal})
		case err != nil:
			unwritten = append(unwritten, g)
		case here:
			written = append(written, g)
		default:
			c.done(g.unconfirmedGrant, confirmation{Gone: true}) // the server does not have it any more
		}
	}
	return written, unwritten
}

// finalOf is the reply by which Redis refuses the question for good; nil: it does not.
func finalOf(err error) error {
	var r redislink.Refusal
	if !errors.As(err, &r) {
		return nil
	}
	if text := string(r); strings.HasPrefix(text, "NOPERM ") || strings.HasPrefix(text, "ERR unknown command") {
		return r
	}
	return nil
}
