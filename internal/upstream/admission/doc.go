// Package admission decides who gets a place where places are bounded: which owner may take one more, whose turn it is when
// one becomes free, and which unused thing goes first when room is needed. It does no I/O, knows no time, and is not safe for
// concurrent use: its callers have a lock.
package admission
