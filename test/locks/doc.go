// Package locks tests the lock commands from outside: the built program, real clients and a real redis-server, each a
// process of its own that can be killed, stopped and cut off. It has only tests.
//
//	clients (this test binary, re-executed) ──► proxy 1, proxy 2 (bin/lockproxy) ──► redis-server
//	        │ history of calls and returns          ▲                                   ▲
//	        ▼                                       └──────── faults: kill, stop, cut off
//	   checks: model, fences, order, liveness
//
// A test runs a random workload under random faults and checks its whole history; README.md says what each check proves.
// What one command does is tested in internal/lockcmds and in the other packages of test.
//
// All processes share one machine and so one CLOCK_MONOTONIC: a call is stamped before its first byte is written, a
// return after the last byte of its reply was read. Intervals built from these stamps are exact.
//
// Environment:
//
//	LOCKPROXY_BINARY      the program to test; unset: it is built from this tree
//	LOCKPROXY_CHAOS_TIME  how long faults are injected in each chaos test
//	LOCKPROXY_SEED        repeats the choices of an earlier run; the interleaving remains the machine's
package locks
