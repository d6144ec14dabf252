// Package sentinel follows a primary with the help of Redis Sentinels.
//
//	Sentinels ──events, answers──► link (one each) ──► Watcher ──elect──► topology.Primary.Publish ──► Moved
//	                                   ▲                  │ asks all Sentinels: every second, at each event, and at each
//	                                   └──────────────────┘ failed connection to the primary
//
// All Sentinels are asked, and the answer with the greatest configuration epoch counts: a Sentinel that was cut off, or has just started,
// knows an old configuration. A view is never replaced by an older one, unless the process at its address is no primary and a majority of
// the Sentinels agree on the older one. A Sentinel that does not answer is left out. If none answers, the view stays.
//
// Sentinels that know the primary by its name tell which others watch it. These are asked, too, up to a limit (package roster), so the view stays fresh when all
// Sentinels of the configuration have been replaced. What one of these says of the primary counts if another Sentinel knows the server.
//
// # Goroutines
//
//   - Watcher.Run is the only one that decides.
//   - link.run, one for each Sentinel, connects, subscribes to events, and reads answers.
package sentinel
