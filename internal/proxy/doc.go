// Package proxy is the server: it accepts clients, hands each to an engine with a session of its own, and drains.
//
//	listener ─▶ pendingConn (PROXY header, TLS, first command) ─▶ engine ─bytes─▶ session ─▶ lane, pin or lock engine
//
// # Goroutines
//
//   - redcon's accept loop, one per listener, and one of redcon's per client until its first command arrives, which
//     also reads the PROXY header and the TLS handshake;
//   - those of package engine, which call into sessions;
//   - shared.Proxy.Tick, which keeps the clock for idle times.
//
// # Locks
//
// Server.mu guards the list of connections; sessions are entered without it.
package proxy
