//go:build !unix

package process

import (
	"io"
	"os"
)

// Command is a running command.
type Command struct{}

// Start fails.
func Start(Options) (*Command, error) { return nil, ErrUnsupported }

// Ended gets nothing.
func (*Command) Ended() <-chan Exit { return nil }

// Signal fails.
func (*Command) Signal(os.Signal) error { return ErrUnsupported }

// AwaitOrphan fails.
func AwaitOrphan(io.Reader) ([]byte, error) { return nil, ErrUnsupported }

// Terminate does nothing.
func (*Command) Terminate() {}

// Kill does nothing.
func (*Command) Kill() {}

// Signals lists the one signal that every system has.
func Signals() []os.Signal { return []os.Signal{os.Interrupt} }

// CodeOf is the exit code of a process that a signal has ended.
func CodeOf(os.Signal) int { return 130 }
