package cluster

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// ahead are the replies that come before the one that counts, each of which is one line: +OK to ASKING; +OK to MULTI,
// and +QUEUED to each command of a transaction. The zero value has none.
type ahead struct {
	left  int    // still to come, ASKING's included
	tx    int    // of these, MULTI's and those of its commands; 0: it is no transaction
	part  []byte // of a line that is not whole yet
	first []byte // the first error of a transaction
	ran   bool   // MULTI was refused, so the commands behind it may have run one by one
}

// newAhead is what comes before the reply to a command, or to the EXEC of a transaction. tx is the number of replies of
// the latter.
func newAhead(asking bool, tx int) ahead {
	a := ahead{left: tx, tx: tx}
	if asking {
		a.left++
	}
	return a
}

// strip takes these replies off b, in which n replies end, and returns the rest.
func (a *ahead) strip(b []byte, n int) (rest []byte, left int) {
	for a.left > 0 && !a.ran {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			a.part = append(a.part, b...)
			return nil, n
		}
		line := b[:end]
		if len(a.part) > 0 {
			line = append(a.part, line...)
		}
		if line[0] == '-' && a.left <= a.tx && a.first == nil {
			a.first = bytes.Clone(line)
			a.ran = a.left == a.tx && a.tx > 1
		}
		a.part = a.part[:0]
		b, n, a.left = b[end:], n-1, a.left-1
	}
	if a.ran {
		a.left -= n
		return nil, 0
	}
	return b, n
}

// ranAlone reports whether MULTI was refused, so that the commands behind it may have run. over: all replies are in.
func (a *ahead) ranAlone() (ran, over bool) { return a.ran, a.left < 0 }

// judge is the reply to EXEC, which is an error, in the light of those before it: the first refusal for the sake of
// another server, which concerns slot, or else what Redis would say. The answer to an empty transaction is that to its
// MULTI.
func (a *ahead) judge(slot int, exec []byte) []byte {
	switch why := topology.ReadRefusal(a.first); {
	case a.first == nil:
		return exec
	case a.tx == 1, why.Reason != topology.NotRefused && why.Concerns(slot):
		return a.first
	}
	return reply.Aborted(a.first)
}
