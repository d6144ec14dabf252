package session

import "testing"

func TestExecAnswersQueuedCommandsByTheirPosition(t *testing.T) {
	var tx txState
	tx.inTx, tx.base = true, 3
	tx.queued = 3
	tx.queued++ // an ordinary command
	tx.queue(step{rewrite: func(reply []byte) []byte { return append([]byte("+new "), reply[1:]...) }})
	tx.queued++
	if !tx.rewrites() {
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
	if tx.inTx || tx.rewrites() {
		t.Error("the steps outlive the transaction")
	}
}

func TestAnExecChangesTheSessionIfAStepDoes(t *testing.T) {
	tx := txState{steps: []step{{rewrite: func(b []byte) []byte { return b }}}}
	if tx.changes() {
		t.Error("a reply that is only rewritten changes the session")
	}
	if tx.steps = append(tx.steps, step{apply: func([]byte) {}}); !tx.changes() {
		t.Error("a reply that is applied changes nothing")
	}
}
