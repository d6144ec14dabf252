// Package clients makes the answers about clients, those of CLIENT LIST, INFO, KILL and UNBLOCK and of the section Clients of INFO: the
// ids of a proxy's clients, the lines that describe a client, the filters that choose among clients, and the joining of Redis's own
// clients with the proxy's. It does no I/O and knows no sessions: its input is replies of Redis and descriptions of clients.
package clients
