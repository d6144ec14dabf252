package lockcmds

import (
	"sync/atomic"

	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
)

// Changes is the way by which engines that share it get new Defaults. The zero value has none.
type Changes struct{ now atomic.Pointer[Defaults] }

// Set changes the defaults.
func (c *Changes) Set(d Defaults) { c.now.Store(&d) }

// present returns a function that returns the present defaults. The caller of that function does not change them.
func (o *Options) present() func() *Defaults {
	first := o.Defaults
	if o.Changes == nil {
		return func() *Defaults { return &first }
	}
	now := &o.Changes.now
	return func() *Defaults {
		if d := now.Load(); d != nil {
			return d
		}
		return &first
	}
}

// NewSlowLog returns an empty log for LOCKSLOW that follows the present defaults.
func (o *Options) NewSlowLog(b *observe.Budget) *observe.Log {
	present := o.present()
	return observe.New(b, func() observe.Settings { return present().Slow })
}
