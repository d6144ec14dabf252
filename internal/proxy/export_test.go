package proxy

import "time"

// What the tests of the whole server need of its private parts.

// LocksNamed is the number of locks that the last entry of the log names.
const LocksNamed = locksNamed

// SetLockIdle sets the time for which an unused lock engine is kept.
func (o *Options) SetLockIdle(d time.Duration) { o.lockIdle = d }

// CloseConns closes the connections that are left.
func (srv *Server) CloseConns() { srv.closeConns() }
