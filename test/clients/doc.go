// Package clients tests what the proxy knows and says of its clients: who may connect and log in, CLIENT LIST, KILL and
// UNBLOCK, the locks of a session through changes of its identity, and what the log and INFO tell of them.
package clients
