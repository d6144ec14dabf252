package topology

import (
	"slices"
	"strings"
	"testing"
)

func TestAddressesAreRead(t *testing.T) {
	tcp := func(addrs ...string) (all []Server) {
		for _, a := range addrs {
			all = append(all, Server{"tcp", a})
		}
		return all
	}
	for text, want := range map[string]Address{
		"redis.example:6379":          {Kind: KindSingle, Servers: tcp("redis.example:6379")},
		"[::1]:6379":                  {Kind: KindSingle, Servers: tcp("[::1]:6379")},
		":6379":                       {Kind: KindSingle, Servers: tcp(":6379")},
		"unix:/run/redis":             {Kind: KindSingle, Servers: []Server{{"unix", "/run/redis"}}},
		"sentinel://a:26379/mymaster": {Kind: KindSentinel, Servers: tcp("a:26379"), Name: "mymaster"},
		"sentinel://a:1,[::1]:2,10.0.0.1:3/m-1.x": {Kind: KindSentinel, Servers: tcp("a:1", "[::1]:2", "10.0.0.1:3"), Name: "m-1.x"},
		"cluster://a:7000,b:7001":                 {Kind: KindCluster, Servers: tcp("a:7000", "b:7001")},
	} {
		got, err := ParseAddress(text)
		if err != nil || got.Kind != want.Kind || got.Name != want.Name || !slices.Equal(got.Servers, want.Servers) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestMistakesAreExplained(t *testing.T) {
	for text, part := range map[string]string{
		"":                           "no address",
		"redis":                      "no address of Redis, which is host:port, unix:/path, sentinel://",
		"redis:port-without-name":    "no valid port",
		"redis:0":                    "no valid port",
		"unix:":                      "no path",
		"a:1,b:2":                    "write sentinel://host:port,host:port/name",
		"sentinel://a:1,b:2":         "the name of the primary",
		"sentinel://a:1/":            "the name of the primary",
		"sentinel://a:1/my master":   "the name of the primary",
		"sentinel://a:1/mymaster/0":  "the name of the primary",
		"sentinel:///mymaster":       "is not host:port",
		"sentinel://a,b:2/mymaster":  "server 1: it is not host:port",
		"sentinel://a:1,a:1/m":       "listed twice",
		"sentinel://u:p@a:1/m":       "settings of their own",
		"cluster://":                 "is not host:port",
		"cluster://a:1/0":            "has no name or database",
		"redis://user:secret@a:6379": "settings of their own",
		"rediss://a:6379":            "TLS are settings of their own",
		"secret":                     "no address of Redis",
		"me:secret@a:1":              "no address of Redis",
		"secret@a:1":                 "no valid host",
		"a:secret":                   "no valid port",
		"a:1,secret":                 "several servers",
		"redis://:sec#ret@a:1":       "settings of their own",
		"sentinel://:secret@a:1/m":   "settings of their own",
		"sentinel://a:1/secret?":     "the name of the primary",
		"sentinel://a:1,a:secret/m":  "server 2: it has no valid port",
		"cluster://u:secret@a:1":     "settings of their own",
		"cluster://a:1/secret":       "has no name or database",
	} {
		_, err := ParseAddress(text)
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v, want %q in it", text, err, part)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the message has the password: %v", text, err)
		}
	}
}

func TestAnnouncedAddressesAreMapped(t *testing.T) {
	m, err := ParseAddressMap([]string{"10.0.0.1:6379=a.example:7001", "10.0.0.2=b.example", "fd00::1=c.example"})
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		"10.0.0.1:6379": "a.example:7001", "10.0.0.1:6380": "10.0.0.1:6380", "10.0.0.2:1": "b.example:1", "[fd00::1]:5": "c.example:5", "x:1": "x:1",
	} {
		if got := m.Of(from); got != want {
			t.Errorf("%s is reached at %s, want %s", from, got, want)
		}
	}
	for _, bad := range []string{"", "a", "a=", "=b", "a:1=b", "a=b:1", "a/b=c", "a:x=b:1"} {
		if m, err := ParseAddressMap([]string{bad}); err == nil {
			t.Errorf("%q is accepted: %v", bad, m)
		}
	}
	for _, bad := range []string{"redis://u:secret@a:1=b:1", "secret", "a=secret:1"} {
		if _, err := ParseAddressMap([]string{bad}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ParseAddressMap([]string{"a=b", "a=c"}); err == nil {
		t.Error("an address is mapped twice")
	}
}
