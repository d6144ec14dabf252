//go:build !unix

package process

import "os"

// Command is a running command.
type Command struct{}

// Start fails.
func Start(Options) (*Command, error) { return nil, ErrUnsupported }

// Guard fails.
func Guard(int) ([]byte, error) { return nil, ErrUnsupported }

// Ended gets nothing.
func (*Command) Ended() <-chan Exit { return nil }

// Pass does nothing.
func (*Command) Pass(os.Signal) {}

// Terminate does nothing.
func (*Command) Terminate() {}

// Kill does nothing.
func (*Command) Kill() {}

// Suspend does nothing.
func (*Command) Suspend() {}

// Resume does nothing.
func (*Command) Resume() {}

// End does nothing.
func (*Command) End() {}

// Signals lists the one signal that every system has.
func Signals() []os.Signal { return []os.Signal{os.Interrupt} }

// CodeOf is the exit code of a process that a signal has ended.
func CodeOf(os.Signal) int { return 130 }

// EndBy returns.
func EndBy(os.Signal) {}
