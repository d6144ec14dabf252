package errands

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
)

// A parking is the refused errands of a session, in the order of their slots for the replies. A client chooses their number, so no step looks at all of
// them.
type parking struct {
	list []*Errand
	head int                  // those before it have left
	done map[subject]reply.ID // the last command that was carried out while errands were parked
}

func (p *parking) empty() bool { return p.head == len(p.list) }

// all lists the errands.
func (p *parking) all() []*Errand { return p.list[p.head:] }

// add adds an errand. Most come last, or first because they have been sent again.
func (p *parking) add(e *Errand) {
	i, _ := slices.BinarySearchFunc(p.all(), e.at, func(one *Errand, at reply.ID) int { return int(one.at) - int(at) })
	if i == 0 && p.head > 0 {
		p.head--
		p.list[p.head] = e
		return
	}
	p.list = slices.Insert(p.list, p.head+i, e)
}

// first is the first errand. There is one.
func (p *parking) first() *Errand { return p.list[p.head] }

// leave removes the first errand.
func (p *parking) leave() *Errand {
	e := p.list[p.head]
	p.list[p.head] = nil
	if p.head++; p.empty() {
		p.clear()
	}
	return e
}

func (p *parking) clear() {
	if p.head = 0; cap(p.list) > maxSpare {
		p.list = nil
	}
	p.list, p.done = p.list[:0], nil
}

// carriedOut notes that a command has been carried out.
func (p *parking) carriedOut(about subject, at reply.ID) {
	if p.empty() {
		return
	}
	if p.done == nil {
		p.done = map[subject]reply.ID{}
	}
	p.done[about] = max(p.done[about], at)
}

// overtaken reports whether a command of the same key that was sent behind an errand has been carried out.
func (p *parking) overtaken(e *Errand) bool {
	return max(p.done[e.subject], p.done[subject{slot: e.slot}]) > e.at
}
