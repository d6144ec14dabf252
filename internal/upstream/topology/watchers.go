package topology

import (
	"maps"
	"slices"
	"sync"
)

// Watchers are functions that learn of each change. All methods may be called from any goroutine.
type Watchers struct {
	mu   sync.Mutex
	last int
	all  map[int]func()
}

// Watch has f called by Tell until stop is called. f may still be running then.
func (w *Watchers) Watch(f func()) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[int]func(){}
	}
	w.last++
	id := w.last
	w.all[id] = f
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, id)
	}
}

// Tell calls the watchers. They must not block.
func (w *Watchers) Tell() {
	w.mu.Lock()
	all := slices.Collect(maps.Values(w.all))
	w.mu.Unlock()
	for _, f := range all {
		f()
	}
}
