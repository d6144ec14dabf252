//go:build !linux

package proxy

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// loop exists on Linux only.
type loop struct{}

func newLoops(_ *Server, engine string) ([]*loop, error) {
	switch engine {
	case EngineGoroutine, EngineAuto:
		return nil, nil
	case EngineEpoll:
		return nil, errors.New("proxy: engine epoll exists on Linux only")
	}
	return nil, fmt.Errorf("proxy: engine %q is none of auto, goroutine, epoll", engine)
}

func (*loop) run()                                               {}
func (*loop) discard()                                           {}
func (*loop) stop()                                              {}
func (*loop) adopt(net.Conn, origin, time.Time, ...[]byte) error { return errors.ErrUnsupported }
