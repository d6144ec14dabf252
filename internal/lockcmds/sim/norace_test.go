//go:build !race

package sim

// fixed is how many histories are played each time.
const fixed = 2500
