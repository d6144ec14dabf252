package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Passed are the sockets that systemd has opened for this process. It may be called once.
func Passed() ([]net.Listener, error) {
	all, err := activation.Listeners()
	if err != nil {
		return nil, err
	}
	if slices.Contains(all, nil) {
		return nil, errors.New("systemd passes a socket that does not listen for connections")
	}
	return all, nil
}

// notify ignores errors: the process can do nothing about them, and systemd notices the silence.
func notify(state string) { _, _ = daemon.SdNotify(false, state) }

// Ready says that clients can connect, or that a reload has ended.
func Ready() { notify(daemon.SdNotifyReady) }

// Reloading says that a reload begins. Ready ends it.
func Reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return
	}
	notify(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/int64(time.Microsecond)))
}

// Stopping says that the process ends within that time.
func Stopping(within time.Duration) {
	notify(fmt.Sprintf("%s\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, within.Microseconds()))
}

// Watch tells the watchdog of the unit that the process works, until ctx ends. alive blocks for as long as the process
// does not. Without a watchdog it returns at once.
func Watch(ctx context.Context, alive func()) {
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil || period == 0 {
		return
	}
	ticks := time.NewTicker(period / 2)
	defer ticks.Stop()
	for {
		alive()
		notify(daemon.SdNotifyWatchdog)
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}
