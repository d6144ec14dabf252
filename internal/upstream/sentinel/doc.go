// Package sentinel follows a primary with the help of Redis Sentinels.
//
//	Sentinels ──events, answers──► link (one each) ──► Watcher ──election──► topology.Primary.Publish ──► Moved
//	                                   ▲                  │ asks all Sentinels: every second, at each event, and at each
//	                                   └──────────────────┘ failed connection to the primary
//
// All Sentinels are asked. A majority of those of the configuration is followed: at once if its epoch is greater, else
// when it has lasted and its server is a primary. Fewer are followed to a server that belongs to the present primary,
// with a greater epoch, and not against a majority. A Sentinel that does not answer is left out. If none answers, the
// view stays. docs/dev/DECISIONS.md has the reasons.
//
// Sentinels that know the primary by its name tell which others watch it. These are asked, too, up to a limit
// (sentinelset.go), so the view stays fresh when all Sentinels of the configuration have been replaced.
//
// # Goroutines
//
//   - Watcher.Run is the only one that decides.
//   - link.run, one for each Sentinel, connects, subscribes to events, and reads answers.
//   - that of try, at most one, asks servers for their role.
package sentinel
