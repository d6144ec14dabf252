// Package failover tests what clients and locks see of the end of a Redis: a restart, a primary that moves behind
// Sentinels, credentials and names that Sentinels tell, and grants that replicas must have (SYNC).
package failover
