package proxy

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// listenUnix opens a unix socket. The file of a process that is gone is replaced. Closing the listener
// removes the file. perm is the file's mode; 0: the umask decides.
func listenUnix(path string, perm fs.FileMode) (net.Listener, error) {
	ln, err := bindUnix(path, perm)
	if errors.Is(err, syscall.EADDRINUSE) && stale(path) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		ln, err = bindUnix(path, perm)
	}
	return ln, err
}

func bindUnix(path string, perm fs.FileMode) (net.Listener, error) {
	var lc net.ListenConfig
	if perm != 0 {
		lc.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { limitSocketMode(fd, perm) })
		}
	}
	ln, err := lc.Listen(context.Background(), "unix", path)
	if err != nil || perm == 0 || strings.HasPrefix(path, "@") { // an abstract socket has no file
		return ln, err
	}
	if err := os.Chmod(path, perm.Perm()); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// stale reports whether path is a socket without a listener.
func stale(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return false
	}
	nc, err := net.Dial("unix", path)
	if err == nil {
		_ = nc.Close() // a process listens there
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
