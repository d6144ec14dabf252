package admission

import (
	"testing"
	"testing/synctest"
)

func TestTurnsAreTakenInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := make(Turns, 1)
		turns.Take()
		var order []int
		for i := range 3 {
			go func() {
				turns.Take()
				defer turns.Leave()
				order = append(order, i)
			}()
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Error("more than one has its turn")
		}
		turns.Leave()
		synctest.Wait()
		if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Error(order)
		}
	})
}

func TestWithoutTurnsNobodyWaits(t *testing.T) {
	var none Turns
	none.Take()
	none.Take()
	none.Leave()
	if cap(NewTurns()) < 1 {
		t.Error("nobody would have a turn")
	}
}
