// Package clients makes the answers about the proxy's clients, those of CLIENT LIST, INFO, KILL and UNBLOCK and of the
// section Clients of INFO: the ids of clients, the lines that describe a client, and the filters that choose among
// clients. It does no I/O and knows no sessions: its input is replies of Redis and descriptions of clients.
package clients
