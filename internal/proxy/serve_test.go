package proxy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// engines are those that every test of connections runs with.
var engines = []string{proxy.EngineAuto, proxy.EngineGoroutine}

// serve runs a proxy with these options until the test ends, or stop is called. It has found Redis when it returns.
func serve(t *testing.T, opts proxy.Options) (srv *proxy.Server, stop func()) {
	t.Helper()
	proxy.Finish(&opts)
	srv, err := proxy.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Run(ctx); err != nil {
			t.Errorf("proxy: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	redistest.Eventually(t, 10*time.Second, "the proxy to find Redis", func() bool {
		ready, _ := srv.Ready()
		return ready
	})
	return srv, stop
}

// address is where clients connect to the i-th listener.
func address(srv *proxy.Server, i int) string { return srv.Addrs()[i].String() }

// infoOf is a field of INFO lockproxy.
func infoOf(t *testing.T, addr, field string) string {
	t.Helper()
	v := decode(t, ask(t, addr, "INFO lockproxy"))
	for line := range strings.SplitSeq(string(v.Str), "\r\n") {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return value
		}
	}
	t.Fatalf("INFO lockproxy has no %s: %s", field, v.Str)
	return ""
}

// field is one field of a map, or of the flat list that stands for one.
func field(v resp.Value, name string) string {
	for i := 0; i+1 < len(v.Elems); i += 2 {
		if string(v.Elems[i].Str) == name {
			return string(v.Elems[i+1].Str)
		}
	}
	return ""
}
