// Package admission gives out bounded places: it says which owner may take one more, which waiting owner is next when
// one becomes free, and which unused thing goes first when a place is needed. It does no I/O, knows no time, and is not
// safe for concurrent use: its callers have a lock. Turns are for goroutines that compute.
package admission
