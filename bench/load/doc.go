// Package load generates load on a server that speaks the Redis protocol, from one goroutine for any number of
// connections: on two cores a generator with a goroutine per connection would be what is measured.
//
//	Workload ──Send──► Conn ──► socket
//	    ▲                          │ epoll
//	    └──Reply── frame ◄─────────┘        Pace: a timer that says when the next command of a constant rate is due
//
// Nothing here starts a goroutine: a Loop, its Conns and its Workload belong to the goroutine that calls Run.
//
// Latency is counted in one of two ways. A closed loop counts from the moment a command was sent; a server that stalls
// also stalls the generator, so the stall is counted once per connection. An open loop has a constant rate and counts
// from the moment at which a command was due, whether or not anything could be sent then, so that a stall costs all the
// commands that fell into it; commands without a reply at the end are counted with the time they have waited so far.
//
// Linux only.
package load
