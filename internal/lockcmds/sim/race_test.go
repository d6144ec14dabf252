//go:build race

package sim

// fixed is how many histories are played each time. The race detector has nothing to find on one loop, and makes each
// ten times slower.
const fixed = 100
