// Package clients says what CLIENT LIST, INFO, KILL and UNBLOCK and the section Clients of INFO say of clients: the ids of a
// proxy's clients, the lines in which Redis describes a client, the filters that choose among them, and how Redis's own
// clients and the proxy's are joined into one answer. It does no I/O and knows no sessions: it is fed replies of Redis and
// descriptions of clients.
package clients
