// Package interop runs real client libraries against the built program: `make interop`. Its tests carry the build tag
// interop, because they download the libraries.
//
//	TestMain ──builds──► lockproxy
//	                                   ┌────────── stand, one per client ───────────┐
//	go-redis, rueidis    in process ──►│ REDIS_URL ──────────────► redis or valkey  │
//	redis-py, node-redis, a program ──►│ LOCKPROXY_URL ─► lockproxy ─► redis/valkey │
//	ioredis, Jedis …     each          └────────────────────────────────────────────┘
//	      │
//	      └─► "ok CLAIM" or "FAIL CLAIM: reason", one line per claim ──► one subtest each
//
// Every client proves the same claims (see claims), with the defaults of its library. A claim that a program does not
// report counts as failed. The claim "mixed" runs the same sequence of operations on both servers of the stand and
// compares the replies as the library hands them out.
//
// Packages of other languages are installed into .cache/interop. A machine without one of the languages, or without a
// network to fetch a package, skips those clients and says so; LOCKPROXY_REQUIRE_INTEROP=1 makes that a failure.
package interop
