package session

import (
	"bytes"
	"testing"
)

func TestExecAnswersQueuedCommandsByTheirPosition(t *testing.T) {
	var tx TxState
	tx.InTx, tx.Base = true, 3
	tx.Queued = 3
	tx.Queued++ // an ordinary command
	tx.queue(Step{Rewrite: func(reply []byte) []byte { return append([]byte("+new "), reply[1:]...) }})
	tx.Queued++
	tx.queue(Step{Verb: "subscribe", Left: 1})
	if !tx.rewrites() || !tx.subscribes() {
		t.Error("the steps are not known")
	}
	reply := []byte("*4\r\n$2\r\na\r\r\n+old\r\n*1\r\n:1\r\n:4\r\n")
	if got, want := string(Rewritten(reply, tx.Steps)), "*4\r\n$2\r\na\r\r\n+new old\r\n*1\r\n:1\r\n:4\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, unchanged := range []string{"*-1\r\n", "-EXECABORT x\r\n", "_\r\n"} {
		if got := Rewritten([]byte(unchanged), tx.Steps); string(got) != unchanged {
			t.Errorf("%q became %q", unchanged, got)
		}
	}
	tx.end()
	if tx.InTx || tx.rewrites() || tx.subscribes() {
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
	tx := TxState{Steps: []Step{{Rewrite: func(b []byte) []byte { return b }}, {Verb: "subscribe"}}}
	if tx.changes() {
		t.Error("a reply that is only rewritten changes the session")
	}
	if tx.Steps = append(tx.Steps, Step{Apply: func([]byte) {}}); !tx.changes() {
		t.Error("a reply that is applied changes nothing")
	}
}
