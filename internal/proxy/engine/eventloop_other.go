//go:build !linux

package engine

import (
	"errors"
	"time"
)

// eventLoop exists on Linux only.
type eventLoop struct{}

func newEventLoops(Options) ([]*eventLoop, error) { return nil, nil }

func (*eventLoop) run()                {}
func (*eventLoop) discard()            {}
func (*eventLoop) stop()               {}
func (*eventLoop) busy() time.Duration { return 0 }
func (*eventLoop) adopt(Arrival) error { return errors.ErrUnsupported }
