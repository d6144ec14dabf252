package proxy

// What the tests of the whole server need of its private parts.

// LocksNamed is the number of locks that the last entry of the log names.
const LocksNamed = locksNamed

// CloseConns closes the connections that are left.
func (srv *Server) CloseConns() { srv.closeConns() }
