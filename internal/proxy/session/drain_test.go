package session

import "testing"

func TestAClientLeavesBehindAReply(t *testing.T) {
	for _, busy := range []bool{false, true} {
		var s drainState
		if s.sent(); s == drainServed {
			t.Error("it leaves before it is asked")
		}
		if !s.ask(busy) || s.ask(busy) {
			t.Error("it is asked once")
		}
		if (s == drainServed) != busy {
			t.Errorf("busy %v: leaves behind a reply: %v", busy, s == drainServed)
		}
		if s.sent(); s != drainServed {
			t.Error("it stays although it has sent something")
		}
	}
}
