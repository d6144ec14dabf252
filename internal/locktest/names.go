package locktest

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// Names are the keys and channels of one lock, in Redisson's forms, and the fence counter.
type Names struct{ Lock, Channel, Queue, Deadlines, Fence string }

// NamesOf builds the names of a lock.
func NamesOf(key string) Names {
	queue := script.Queue(key)
	return Names{
		Lock: key, Channel: script.Channel(key), Queue: queue, Fence: script.Fence,
		Deadlines: strings.Replace(queue, "redisson_lock_queue:", "redisson_lock_timeout:", 1),
	}
}

// PlaceOf is the place of an owner in the queue.
func (n Names) PlaceOf(owner string) string { return script.PlaceOf(n.Lock, owner) }

// NameChannel is the channel on which the owner is woken by its name.
func (n Names) NameChannel(owner string) string { return script.NameChannel(n.Lock, owner) }
