package metrics

import (
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

func TestRowsAreComplete(t *testing.T) {
	series, info := map[string]bool{}, map[string]bool{}
	help := map[string]Row{}
	for _, row := range Table {
		name := row.Info + "/" + row.Metric + "/" + row.Value
		if row.Info != "" && (info[row.Info] || row.Number == nil && row.Text == nil && row.ByLabel == nil) {
			t.Errorf("%s: INFO cannot show it, or shows it twice", name)
		}
		info[row.Info] = true
		if row.Help == "" || row.Info == "" && row.Metric == "" {
			t.Errorf("%s has no meaning or no name", name)
		}
		if row.Metric == "" {
			continue
		}
		if series[row.Metric+row.Value] {
			t.Errorf("%s is there twice", name)
		}
		series[row.Metric+row.Value] = true
		if before, ok := help[row.Metric]; ok && (before.Help != row.Help || before.Label != row.Label) {
			t.Errorf("%s differs from the other rows of its metric", name)
		}
		help[row.Metric] = row
		labelled := row.ByLabel != nil || row.Waits != nil || row.Values != nil
		if labelled != (row.Label != "" && row.Value == "") || !labelled && row.Number == nil {
			t.Errorf("%s: its values do not fit its label", name)
		}
	}
}

// A counter that no row reads would be counted for nobody.
func TestEveryNumberIsShown(t *testing.T) {
	shown := func(s *Stats) string {
		text := s.info(func(*Row) bool { return true })
		for _, row := range Table {
			switch {
			case row.Waits != nil:
				for label, w := range row.Waits(s) {
					text += label + w.Sum.String()
				}
			case row.Values != nil:
				text += strings.Join(row.Values(s), " ")
			case row.ByLabel != nil:
				text += Joined(row.ByLabel(s))
			case row.Number != nil:
				text += row.text(s)
			}
		}
		return text
	}
	var zero Stats
	var visit func(v reflect.Value, s *Stats, name string)
	visit = func(v reflect.Value, s *Stats, name string) {
		before := shown(&zero)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				visit(v.Field(i), s, v.Type().Field(i).Name)
			}
			return
		case reflect.Map:
			label, value := "word", reflect.ValueOf(int64(4711))
			switch name {
			case "Closed":
				label = "panic" // a label of its own has a row
			case "Waits", "Queued", "Holds", "Handovers", "ProxyTime", "UpstreamTime":
				value = reflect.ValueOf(Waits{Sum: time.Hour})
			}
			m := reflect.MakeMap(v.Type())
			m.SetMapIndex(reflect.ValueOf(label), value)
			v.Set(m)
		case reflect.Slice:
			v.Set(reflect.ValueOf([]lockcmds.HotLock{{Key: "k"}}))
		case reflect.String:
			v.SetString("4711")
		case reflect.Bool:
			v.SetBool(true)
		default:
			v.SetInt(int64(4711 * time.Second)) // whole seconds, if it is a duration
		}
		if shown(s) == before {
			t.Errorf("no row shows %s", name)
		}
		v.SetZero()
	}
	var s Stats
	visit(reflect.ValueOf(&s).Elem(), &s, "")
}

func TestEveryCounterIsShown(t *testing.T) {
	var c Counters
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		var before, after Stats
		c.read(&before)
		switch field := reflect.NewAt(v.Type().Field(i).Type, v.Field(i).Addr().UnsafePointer()).Interface().(type) {
		case interface{ Store(int64) }:
			field.Store(4711)
		case *[len(reasons)]atomic.Int64:
			field[Panic].Store(4711)
		case *Tally:
			field.Add("word", 1)
		case *[grammar.FairLock + 1]Histogram:
			field[grammar.Lock].Add(time.Second)
		case *[1]Histogram:
			field[0].Add(time.Second)
		case *Traffic:
			field.Add(1, ClassLock, 1, 10)
		case *Least:
			field.Add(time.Now(), time.Second)
		}
		if c.read(&after); cmp.Equal(before, after) {
			t.Errorf("Stats does not have %s", v.Type().Field(i).Name)
		}
	}
}

func TestInfoIsAnInfoSection(t *testing.T) {
	s := Stats{
		Version: "1.2.3", UpstreamUp: true, Held: 7,
		PinReasons: map[string]int64{"multi": 2, "blpop": 1}, Lost: map[string]int64{"gone": 3, "forced": 1},
	}
	lines := strings.Split(s.info(func(*Row) bool { return true }), "\r\n")
	if lines[0] != "# Lockproxy" || lines[len(lines)-1] != "" {
		t.Errorf("%q", lines)
	}
	for _, want := range []string{"lockproxy_version:1.2.3", "upstream:up", "pins_by_reason:blpop=1,multi=2", "locks_lost:4", "locks_held:7"} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %s", want)
		}
	}
}

// A margin of 0 would say that a lease is about to be lost.
func TestAProxyWithoutRenewalsHasNoMargin(t *testing.T) {
	var c Counters
	var s Stats
	c.read(&s)
	i := slices.IndexFunc(Table, func(r Row) bool { return r.Metric == "lock_renewal_margin_seconds" })
	if got := Table[i].Number(&s); got >= 0 {
		t.Errorf("the margin of a fresh proxy is %d", got)
	}
	c.LockEvents().Renewed(watchdog.Round{Done: 1, Margin: 20 * time.Second})
	c.LockEvents().Renewed(watchdog.Round{Failed: 3})
	if c.read(&s); Table[i].Number(&s) != 20_000 {
		t.Errorf("the margin of a renewal is %d", Table[i].Number(&s))
	}
}

// Clients choose the names of locks: none adds a line to INFO.
func TestHotLocksAreOneLine(t *testing.T) {
	locks := []lockcmds.HotLock{{Key: "a,b\r\nx:1", Waited: time.Second}, {Key: "k", Waited: time.Millisecond}}
	if got := hotText(locks); got != `"a,b\r\nx:1"=1000,"k"=1` {
		t.Error(got)
	}
}
