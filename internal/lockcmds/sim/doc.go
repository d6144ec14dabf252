// Package sim plays whole histories of locks in virtual time, and checks after each step what must always be true.
//
// Two or three real lock engines, each as a proxy of its own, run on one event loop against a model of Redis. The model is written in Go
// and executes the lock scripts themselves. No goroutine is scheduled and no clock of the machine is read, so a seed decides a history
// to the last step. Faults are part of it: connections are cut, requests run late, sessions and proxies die, Redis's clock is stepped,
// keys are evicted, everything is flushed.
//
//	plan (seed) ──► commands, faults ──► sessions ──► engines ──► connections ──► model of Redis ──► scripts
//	                                         ▲ one event loop, virtual time ▲
//	                                         └──── checks after each step ──┘
//
// A seed that breaks a rule is minimised and printed as lines that a person can read. All of it is in tests.
package sim
