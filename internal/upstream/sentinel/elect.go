package sentinel

import "github.com/lockproxy/lockproxy/internal/upstream/answers"

// view is an epoch with its address; the zero value is none.
type view struct {
	epoch int64
	addr  string
}

// elect returns the view that follows from the present one and from answers of different Sentinels. refuted says that the process at
// the present address is no primary. majority is that of all Sentinels, with or without an answer.
func elect(present view, refuted bool, all []answers.Answer, majority int) view {
	votes := map[view]int{}
	best := view{}
	for _, a := range all {
		v := view{a.Epoch, a.Addr}
		votes[v]++
		switch {
		case best.addr == "", v.epoch > best.epoch:
			best = v
		case v.epoch == best.epoch && (votes[v] > votes[best] || votes[v] == votes[best] && v.addr < best.addr):
			best = v
		}
	}
	switch {
	case best.addr == "":
		return present
	case present.addr == "", best.epoch > present.epoch:
		return best
	case best.epoch == present.epoch:
		// Sentinels that agree on the epoch may still differ, if an operator has told them different addresses.
		if !refuted && (votes[present] > 0 || votes[best] < majority) {
			return present
		}
		delete(votes, present)
		for v, n := range votes {
			if v.epoch == best.epoch && (best == present || n > votes[best]) {
				best = v
			}
		}
		return best
	case refuted && votes[best] >= majority:
		return best
	}
	return present
}
