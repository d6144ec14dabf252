// Package sentinel follows a primary with the help of Redis Sentinels.
//
//	Sentinels ──events, answers──► link (one each) ──► Watcher ──follower──► topology.Primary.Publish ──► Moved
//	                                   ▲                  │ asks all Sentinels: every second, at each event, and at each
//	                                   └──────────────────┘ failed connection to the primary
//
// The Sentinels of the configuration are asked, and no others. The server that a majority of them names is followed
// unless it says that it is a replica: at once if its epoch is greater, or if the present one is no primary or does not
// answer; else when the majority has lasted. A replica that a Sentinel has told to become the primary is asked for its
// role meanwhile, and followed as soon as it is one. docs/dev/DECISIONS.md has the reasons.
//
// # Goroutines
//
//   - Watcher.Run is the only one that decides.
//   - link.run, one for each Sentinel, connects, subscribes to events, and reads answers.
//   - that of try, at most one, asks servers for their role.
package sentinel
