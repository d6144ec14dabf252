package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file looks at the commands behind a LOCK that waits for a hold of its own connection. The task that is to
// release that hold may be waiting for the answer to one of them, or have sent the release itself: then the LOCK waits
// for ever.

// behind is such a LOCK. Each byte behind it is looked at once.
type behind struct {
	lock  string
	tell  func()
	guard *resp.Guard
	seen  int // bytes of the commands that have been looked at
}

// mostBehind bounds the bytes behind one LOCK that are looked at.
const mostBehind = 64 << 10

// standing is what it means that a command stands behind such a LOCK.
type standing uint8

const (
	standsFine    standing = iota // it may wait
	standsUnknown                 // not enough of it has come
	standsBlocked                 // the hold may not end before it runs
	standsEnds                    // it decides what those behind it are about
)

// OnBehind implements contract.Session.
func (s *Session) OnBehind(lock string, f func()) {
	s.behind = &behind{lock: lock, tell: f, guard: resp.NewGuard()}
}

// lookBehind looks at what has come since. The session is about to be unlocked, so all bytes that it has got are held.
func (s *Session) lookBehind() {
	b := s.behind
	if s.wait != waitLock || s.life != living {
		return
	}
	for b.seen < mostBehind {
		f, n, err := b.guard.Next(s.in.bytes()[b.seen:])
		at := standsUnknown
		switch {
		case err != nil:
			at = standsEnds
		case n == 0:
			if name, known := b.guard.Open(); known {
				at = b.judge(name, nil)
			}
		case len(f.Raw) > 0:
			at = b.judge(f.Name, f.Raw)
		default:
			at = standsFine // an empty command
		}
		switch {
		case at == standsBlocked:
			s.behind = nil
			b.tell()
			return
		case at == standsEnds:
			s.behind = nil
			return
		case n == 0:
			return
		}
		b.seen += n
	}
	s.behind = nil
}

// judge says what a command means. raw is nil if it is not all there.
func (b *behind) judge(name, raw []byte) standing {
	if spec := grammar.Find(name); spec != nil {
		if v := spec.Verb; v == grammar.Lock || v == grammar.TryLock || v == grammar.FairLock {
			return standsFine
		}
		if raw == nil {
			return standsUnknown
		}
		if args := resp.FirstArgs(raw, nil, 2); len(args) == 2 && string(args[1]) == b.lock {
			return standsBlocked
		}
		return standsFine
	}
	for _, fine := range []string{"PING", "CLIENT"} {
		if bytes.EqualFold(name, []byte(fine)) {
			return standsFine
		}
	}
	for _, ends := range []string{"SELECT", "AUTH", "HELLO", "RESET", "MULTI"} {
		if bytes.EqualFold(name, []byte(ends)) {
			return standsEnds
		}
	}
	return standsBlocked
}
