package blackbox

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestDefaultOwnersCannotBeGuessedNorNamed(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	ownerOf := func(c *proxytest.Client, key string) string {
		c.Script("LOCK "+key, ":")
		fields, _ := srv.Redis.Do(t, "HKEYS", key).([]any)
		for _, f := range fields {
			if name := f.(string); name != "fence" && name != "mode" && !strings.HasPrefix(name, "{") {
				return f.(string)
			}
		}
		t.Fatalf("no owner in %v", fields)
		return ""
	}
	a, b := srv.Dial(t), srv.Dial(t)
	first, again, second := ownerOf(a, "one"), ownerOf(a, "two"), ownerOf(b, "three")
	const session, process = 36 + 1 + 12, 36
	if first == again || first[:session+1] != again[:session+1] || first[:session] == second[:session] ||
		first[:process+1] != second[:process+1] {
		t.Errorf("owners %s and %s of one connection, %s of another", first, again, second)
	}
	for _, command := range []string{"UNLOCK one OWNER ", "EXTENDLOCK one PX 1 OWNER ", "LOCK one OWNER "} {
		b.Raw(command + first + "\r\n")
		b.Gets("-ERR OWNER cannot be the default owner of a connection\r\n")
	}
	a.Script("UNLOCK one", ":1")
}
