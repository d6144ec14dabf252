// Package bugs has deliberate bugs of the locks, each a patch, and a test of the tests: it plants one after the other,
// and demands that each suite which claims to find it does so in time. It has only tests.
//
// The head of a patch says what the bug is, and who finds it:
//
//	Bug: every grant gets the same fence
//	Found by: sim, within 1m
//	Found by: chaos fences, within 1m
//	Found by: internal/lockcmds TestFencesGrow, within 1m
//
// sim plays histories (internal/lockcmds/sim) in two processes. chaos is the test of test/locks that kills processes,
// with the check that must fail. Anything else is a package and its test.
//
// The compiler replaces the sources that a patch changes (-overlay), so the tree stays as it is. One line of context
// around each hunk must be the same as when the patch was made. A test of internal/house says when it is not.
package bugs
