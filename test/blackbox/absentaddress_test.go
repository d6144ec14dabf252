package blackbox

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// 198.51.100.1 is an address of documents, which no machine has.
func TestAnAddressThatTheMachineLacksMayBeLeftOut(t *testing.T) {
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Listen = []string{"-198.51.100.1:0", "-127.0.0.1:0"} })
	if addrs := srv.Addrs(); len(addrs) != 1 {
		t.Errorf("it listens at %v", addrs)
	}
	for _, listen := range [][]string{{"127.0.0.1:0", "198.51.100.1:0"}, {"-198.51.100.1:0"}, {"-" + srv.Addr()}} {
		o := srv.Options
		o.Listen = listen
		if other, err := proxy.New(o); err == nil {
			other.Close()
			t.Errorf("%v is no error", listen)
		}
	}
}
