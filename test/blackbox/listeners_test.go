package blackbox

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// socketPath is short enough for a unix socket.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// leave makes a socket file as a process leaves it that was killed.
func leave(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
}

func TestUnixSocketsOnBothSides(t *testing.T) {
	t.Parallel()
	redisServer, path := redistest.Start(t), socketPath(t)
	leave(t, path)
	srv, stop := proxytest.Serve(t, proxy.Options{
		Listen: []string{"unix:" + path}, Upstream: upstream.Options{Addr: "unix:" + redisServer.Socket()},
	})
	c := proxytest.Dial(t, "unix:"+srv.Addr())
	c.Script("SET k v", "+OK", "TRYLOCK l PX 60000 OWNER me", ":")
	c.Conn.Close()
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket's file is still there after the stop: %v", err)
	}
}

func TestModeOfAUnixSocketIsTheUmasksIfNotSet(t *testing.T) {
	t.Parallel()
	path, plain := socketPath(t), socketPath(t)
	ln, err := net.Listen("unix", plain)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	want, err := os.Stat(plain)
	if err != nil {
		t.Fatal(err)
	}
	proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) { o.Listen = []string{"unix:" + path} })
	got, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Mode() != want.Mode() {
		t.Errorf("mode %v, want %v", got.Mode(), want.Mode())
	}
}

func TestFileThatIsNotALeftoverSocketIsNotTouched(t *testing.T) {
	t.Parallel()
	taken := socketPath(t)
	ln, err := net.Listen("unix", taken)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file := socketPath(t)
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := socketPath(t)
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{taken, file, link} {
		opts := proxy.Options{Listen: []string{"unix:" + path}, Upstream: upstream.Options{Addr: "127.0.0.1:1"}}
		proxytest.Finish(&opts)
		_, err := proxy.New(opts)
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
}

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
