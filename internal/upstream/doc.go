// Package upstream is the Redis side of lockproxy: the connections that ordinary commands, pinned sessions and
// scripts travel on. Only it and the packages below it know the address of Redis.
//
// A session asks for a connection by identity and key. The topology says which server serves the key. Each connection
// is a stream (package stream): sessions append requests to it, and get the replies. There are two kinds:
//
//   - a Lane (package lanes) is shared by sessions of one Identity and reconnects until it is closed;
//   - a Pin (package pins) belongs to one session at a time (MULTI, BLPOP, SUBSCRIBE …), lives as long as its
//     connection does, and returns to a bounded pool when its session no longer needs it.
//
// # Goroutines
//
//   - Upstream.Run: refreshes the command table, asks for settings that matter here, and closes unused connections.
//   - watchAuth: asks whether clients need credentials.
//   - viewRefresher.Run, in front of a cluster, and one for each server that it asks at the moment.
//   - those of packages dial, lanes, pins, sentinel and stream.
package upstream
