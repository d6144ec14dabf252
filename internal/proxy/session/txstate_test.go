package session

import (
	"bytes"
	"testing"
)

func TestExecAnswersQueuedCommandsByTheirPosition(t *testing.T) {
	var tx txState
	tx.inTx, tx.base = true, 3
	tx.queued = 3
	tx.queued++ // an ordinary command
	tx.queue(step{rewrite: func(reply []byte) []byte { return append([]byte("+new "), reply[1:]...) }})
	tx.queued++
	tx.queue(step{verb: "subscribe", left: 1})
	if !tx.rewrites() || !tx.subscribes() {
		t.Error("the steps are not known")
	}
	reply := []byte("*4\r\n$2\r\na\r\r\n+old\r\n*1\r\n:1\r\n:4\r\n")
	if got, want := string(rewritten(reply, tx.steps)), "*4\r\n$2\r\na\r\r\n+new old\r\n*1\r\n:1\r\n:4\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, unchanged := range []string{"*-1\r\n", "-EXECABORT x\r\n", "_\r\n"} {
		if got := rewritten([]byte(unchanged), tx.steps); string(got) != unchanged {
			t.Errorf("%q became %q", unchanged, got)
		}
	}
	tx.end()
	if tx.inTx || tx.rewrites() || tx.subscribes() {
		t.Error("the steps outlive the transaction")
	}
}

func TestElementsAreWholeFrames(t *testing.T) {
	want := [][]byte{[]byte("$3\r\n\r\nx\r\n"), []byte("*2\r\n:1\r\n*0\r\n"), []byte("_\r\n")}
	got := Elements(append([]byte("*3\r\n"), bytes.Join(want, nil)...))
	if len(got) != len(want) {
		t.Fatalf("%q", got)
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("element %d: %q, want %q", i, got[i], want[i])
		}
	}
}

func TestAnExecChangesTheSessionIfAStepDoes(t *testing.T) {
	tx := txState{steps: []step{{rewrite: func(b []byte) []byte { return b }}, {verb: "subscribe"}}}
	if tx.changes() {
		t.Error("a reply that is only rewritten changes the session")
	}
	if tx.steps = append(tx.steps, step{apply: func([]byte) {}}); !tx.changes() {
		t.Error("a reply that is applied changes nothing")
	}
}
