package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports come from below the range that systems use for outgoing connections, so that no unrelated connection
// can take the port of a server that is down between Stop and Restart.
const firstPort, lastPort = 20000, 31999

// Port is a free port on the loopback interface. Until t ends, no other test gets it, in this process or another one: a
// server may be down, and its clients must not find the server of another test.
func Port(t testing.TB) int {
	t.Helper()
	port, err := ports.draw(firstPort, lastPort)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { ports.giveBack(port) })
	return port
}

// reservations are the ports of the tests of this process. The locks of a file, one byte for each port, tell other
// processes of them. They end with the process.
type reservations struct {
	mu    sync.Mutex
	taken map[int]bool // guarded by mu
	file  *os.File     // guarded by mu; closing any descriptor of the file would end the locks
}

var ports = reservations{taken: map[int]bool{}}

var errTaken = errors.New("another test has the port")

// draw reserves a free port from a range.
func (r *reservations) draw(first, last int) (port int, err error) {
	for range 100 {
		port = first + rand.IntN(last-first+1)
		if err = r.reserve(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

func (r *reservations) reserve(port int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken[port] {
		return errTaken
	}
	if r.file == nil {
		name := filepath.Join(os.TempDir(), "redistest-ports-"+strconv.Itoa(os.Getuid()))
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return fmt.Errorf("reserve ports: %w", err)
		}
		r.file = file
	}
	if err := lockByte(r.file, port, syscall.F_WRLCK); err != nil {
		return errTaken
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		_ = lockByte(r.file, port, syscall.F_UNLCK)
		return fmt.Errorf("try port %d: %w", port, err)
	}
	r.taken[port] = true
	return nil
}

func (r *reservations) giveBack(port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, port)
	_ = lockByte(r.file, port, syscall.F_UNLCK)
}

// lockByte locks a byte of a file for this process, or unlocks it, and does not wait.
func lockByte(file *os.File, at int, how int16) error {
	return syscall.FcntlFlock(file.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: how, Start: int64(at), Len: 1})
}
