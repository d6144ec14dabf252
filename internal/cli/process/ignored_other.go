//go:build !linux

package process

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// wasIgnored reports false: this system does not say what the runtime of Go has replaced.
func wasIgnored(sig unix.Signal, c chan<- os.Signal) bool {
	signal.Notify(c, sig)
	return false
}
