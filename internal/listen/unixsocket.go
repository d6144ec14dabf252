package listen

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
)

// listenUnix opens a unix socket in place of a file without use.
func listenUnix(path string) (*net.UnixListener, error) {
	ln, err := bindUnix(path)
	if errors.Is(err, syscall.EADDRINUSE) && (stale(path) || yielded(path)) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		ln, err = bindUnix(path)
	}
	return ln, err
}

func bindUnix(path string) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
}

// unixListener removes its file before it closes. The number of a file tells it from the file of the next process. The
// system gives that number to no other file as long as the socket is open.
type unixListener struct {
	*net.UnixListener
	file   file
	remove sync.Once
}

// Close removes the file and closes the socket.
func (l *unixListener) Close() error {
	l.remove.Do(l.file.remove)
	return l.UnixListener.Close()
}

// file is the file of an open unix socket.
type file struct {
	path string
	info fs.FileInfo
}

func identify(path string) (file, error) {
	info, err := os.Lstat(path)
	return file{path, info}, err
}

// own reports whether the file is still this socket's.
func (f file) own() bool {
	now, err := os.Lstat(f.path)
	return err == nil && os.SameFile(now, f.info)
}

// mark sets the sticky bit, which has no other meaning for a socket: the next process may replace the file.
func (f file) mark() {
	if f.own() {
		_ = os.Chmod(f.path, f.info.Mode().Perm()|fs.ModeSticky) // else the next process starts when this one has gone
	}
}

func (f file) remove() {
	if f.own() {
		_ = os.Remove(f.path) // if it stays, the next process replaces it
	}
}

// yielded reports whether path is a socket with the mark.
func yielded(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket && info.Mode()&fs.ModeSticky != 0
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
