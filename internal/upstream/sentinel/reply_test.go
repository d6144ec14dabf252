package sentinel

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// list is a reply of texts.
func list(texts ...string) resp.Value {
	v := resp.Value{Kind: resp.Array}
	for _, s := range texts {
		v.Elems = append(v.Elems, resp.Value{Kind: resp.Bulk, Str: []byte(s)})
	}
	return v
}

func lists(entries ...resp.Value) resp.Value { return resp.Value{Kind: resp.Array, Elems: entries} }

func refused(text string) resp.Value { return resp.Value{Kind: resp.SimpleError, Str: []byte(text)} }

func TestAnswersAreRead(t *testing.T) {
	master := list("name", "mymaster", "config-epoch", "7", "num-slaves", "2", "down-after-milliseconds", "5000")
	replicas := lists(list("ip", "10.0.0.2", "port", "6379"), list("ip", "::1", "port", "6380"), list("ip", "", "port", "0"), list("port"))
	a, err := readAnswer(master, list("10.0.0.1", "6379"), replicas)
	if err != nil || a.Epoch != 7 || a.Addr != "10.0.0.1:6379" || a.Replicas != 2 || a.DownAfter != 5*time.Second {
		t.Errorf("%+v, %v", a, err)
	}
	if want := []string{"10.0.0.2:6379", "[::1]:6380"}; !slices.Equal(a.Others, want) {
		t.Errorf("replicas %q, want %q", a.Others, want)
	}
	if a, err := readAnswer(master, list("10.0.0.1", "6379"), refused("NOPERM")); err != nil || len(a.Others) > 0 {
		t.Errorf("without a right to ask for replicas: %+v, %v", a, err)
	}
	if _, err := readAnswer(refused("ERR No such master with that name"), resp.Value{Null: true}, replicas); !errors.Is(err, errUnknownName) {
		t.Errorf("an unknown name: %v", err)
	}
	if _, err := readAnswer(list("a", "b"), list("10.0.0.1", "6379"), replicas); err == nil {
		t.Error("a server without an epoch is a Sentinel")
	}
}

func TestPeersAreRead(t *testing.T) {
	reach := topology.AddressMap{"10.0.0.2": "b.example"}
	got := Peers(lists(
		list("ip", "10.0.0.2", "port", "26379", "runid", "x", "flags", "sentinel", "last-hello-message", "1900"),
		list("ip", "10.0.0.3", "port", "26379", "runid", "y", "flags", "s_down,sentinel", "last-hello-message", "29000"),
		list("ip", "10.0.0.4", "port", "26379", "runid", "quiet", "flags", "sentinel", "last-hello-message", "30001"),
		list("ip", "10.0.0.5", "port", "0", "runid", "replaced", "flags", "sentinel"),
	), reach)
	want := []Peer{{ID: "x", Addr: "b.example:26379"}, {ID: "y", Addr: "10.0.0.3:26379", Down: true}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestEventsAreRead(t *testing.T) {
	for message, want := range map[string]string{
		"slave 10.0.0.2:6379 10.0.0.2 6379 @ mymaster 10.0.0.1 6379": "10.0.0.2:6379",
		"slave [::1]:6379 ::1 6379 @ mymaster ::1 6380":              "[::1]:6379",
		"slave 10.0.0.2:6379 10.0.0.2 6379 @ other 10.0.0.1 6379":    "",
		"master mymaster 10.0.0.1 6379":                              "",
	} {
		if got, primary, ok := candidate(message, "mymaster"); ok != (want != "") || ok && (got != want || primary == "") {
			t.Errorf("%s: %q, %v", message, got, ok)
		}
	}
	if !Names("master mymaster 10.0.0.1 6379", "mymaster") || Names("master mymaster2 10.0.0.1 6379", "mymaster") {
		t.Error("a message is about the primary whose name is one of its words")
	}
}
