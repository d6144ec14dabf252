package sentinel

import (
	"errors"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// list is a reply of texts.
func list(texts ...string) resp.Value {
	v := resp.Value{Kind: resp.Array}
	for _, s := range texts {
		v.Elems = append(v.Elems, resp.Value{Kind: resp.Bulk, Str: []byte(s)})
	}
	return v
}

func TestAnswersAreRead(t *testing.T) {
	master := list("name", "mymaster", "config-epoch", "7", "num-slaves", "2", "down-after-milliseconds", "5000")
	a, err := readAnswer(master, list("::1", "6379"))
	if want := (answer{7, "[::1]:6379", 5 * time.Second, 2}); err != nil || a != want {
		t.Errorf("%+v, %v", a, err)
	}
	unknown := resp.Value{Kind: resp.SimpleError, Str: []byte("ERR No such master with that name")}
	if _, err := readAnswer(unknown, resp.Value{Null: true}); !errors.Is(err, errUnknownName) {
		t.Errorf("an unknown name: %v", err)
	}
	if _, err := readAnswer(list("a", "b"), list("10.0.0.1", "6379")); err == nil {
		t.Error("a server without an epoch is a Sentinel")
	}
}
