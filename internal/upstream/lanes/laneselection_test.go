package lanes

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// play is a selection with commands on its lanes.
type play struct {
	t interface {
		Helper()
		Errorf(format string, args ...any)
	}
	laneSelection
	now            time.Time
	asked, settled [maxLanes]uint64
}

func newPlay(t *testing.T) *play { return &play{t: t, now: time.Unix(1, 0)} }

func (p *play) look(after time.Duration) (aside int) {
	p.now = p.now.Add(after)
	return p.Look(p.now, func(i int) (uint64, uint64) { return p.asked[i], p.settled[i] })
}

func (p *play) ask(r Role) int {
	i, _ := p.Pick(r)
	p.asked[i]++
	return i
}

// stall has a lane stand still for as long as it takes.
func (p *play) stall(i int) {
	p.t.Helper()
	p.asked[i]++
	p.look(0)
	if got := p.look(StandsStill); got != 1 {
		p.t.Errorf("%d lanes were set aside, want 1", got)
	}
}

func (p *play) drain(i int) {
	p.settled[i] = p.asked[i]
	p.look(0)
}

func TestOneLaneForAllWhileNothingStandsStill(t *testing.T) {
	p := newPlay(t)
	reads, writes := p.ask(Reads), p.ask(Writes)
	if reads != writes || !p.Settled(reads) {
		t.Errorf("reads on lane %d, writes on lane %d, settled: %v", reads, writes, p.Settled(reads))
	}
	if large := p.ask(Large); large == reads {
		t.Error("large replies share the lane of the others")
	}
}

func TestALaneThatStandsStillIsSetAsideUntilItHasDrained(t *testing.T) {
	p := newPlay(t)
	first := p.ask(Reads)
	p.look(0)
	if p.look(StandsStill-1) != 0 {
		t.Error("set aside too early")
	}
	if p.look(1) != 1 {
		t.Error("not set aside")
	}
	if p.Settled(first) {
		t.Error("who used it is not told")
	}
	reads, writes := p.ask(Reads), p.ask(Writes)
	if reads == first || writes == first || reads == writes {
		t.Errorf("lane %d stands still; reads use %d and writes %d", first, reads, writes)
	}
	if p.Settled(reads) || p.Settled(writes) {
		t.Error("divided lanes are looked at before each command")
	}
	p.drain(first)
	if p.Divided() || !p.Settled(reads) || p.Settled(writes) {
		t.Error("writes do not come back to the others")
	}
	p.drain(reads)
	p.drain(writes)
	if i, open := p.Spare(); open {
		t.Errorf("lane %d is opened as a spare although %d and %d are", i, first, writes)
	}
}

func TestALaneThatMovesIsNotSetAside(t *testing.T) {
	for name, answers := range map[string]uint64{"because its oldest commands are answered": 1, "because it is brisk": brisk} {
		p := newPlay(t)
		i := p.ask(Reads)
		if answers == brisk {
			p.asked[i] = 1 << 40
		}
		for range 100 {
			p.asked[i] += answers
			p.look(StandsStill)
			p.settled[i] += answers
			if answers == 1 {
				p.settled[i] = p.asked[i]
			}
		}
		if p.look(0) > 0 || !p.Settled(i) {
			t.Errorf("not kept %s", name)
		}
	}
}

func TestWritesThatAreHeldBackDoNotTakeTheLanesOfReads(t *testing.T) {
	p := newPlay(t)
	p.stall(p.ask(Reads)) // by a write
	for range 3 * maxLanes {
		p.ask(Writes)
		p.look(StandsStill)
	}
	reads := p.ask(Reads)
	if writes := p.ask(Writes); reads == writes {
		t.Error("reads and writes share a lane")
	}
	p.stall(reads) // by a huge reply
	if next := p.ask(Reads); next == reads {
		t.Error("no lane was left for reads")
	}
}

func TestAPauseThatIsKnownDividesAtOnce(t *testing.T) {
	p := newPlay(t)
	i := p.ask(Reads)
	p.Pause(p.now.Add(time.Second), p.now)
	if writes := p.ask(Writes); writes == i || p.Settled(i) {
		t.Error("not divided")
	}
	p.look(time.Second)
	if writes := p.ask(Writes); writes != i {
		t.Error("divided after the pause")
	}
	p.Pause(p.now.Add(time.Second), p.now)
	p.Pause(time.Time{}, p.now)
	if p.Divided() {
		t.Error("divided after the end of the pause")
	}
}

func TestAConnectionThatEndsStartsAnew(t *testing.T) {
	p := newPlay(t)
	i := p.ask(Reads)
	p.asked[i] = 1000
	p.look(0)
	p.asked[i], p.settled[i] = 1, 0
	if p.look(StandsStill) != 0 {
		t.Error("set aside for commands of the connection before")
	}
	p.Close(i)
	p.asked[i] = 0
	if _, open := p.Pick(Reads); !open {
		t.Error("a closed lane is in use")
	}
}

// Whatever happens, there is a lane for every role, none that is set aside has one, and reads move on as long as a lane
// does.
func TestLineupHoldsTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &play{t: t, now: time.Unix(1, 0)}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, maxLanes-1).Draw(t, "lane")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				p.ask(Role(rapid.IntRange(0, int(roles)-1).Draw(t, "role")))
			case 2:
				p.look(StandsStill)
			case 3:
				p.drain(i)
			case 4:
				p.Close(i)
				p.asked[i], p.settled[i] = 0, 0
			case 5:
				p.Pause(p.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "pause"))*StandsStill), p.now)
			}
			for i := range p.lanes {
				if p.lanes[i].aside && p.role(i) != roles {
					t.Fatalf("lane %d is set aside and has a role", i)
				}
			}
			if i, _ := p.Pick(Reads); p.lanes[i].aside {
				t.Fatalf("reads use lane %d, which is set aside", i)
			}
		}
	})
}
