// Package cluster tests a proxy in front of a Redis Cluster: replies are those of one Redis, and no client sees that slots
// move, servers fail over, stop or go, or the cluster is made anew. Locks keep their leases and their queues on the way.
// Each test has real servers; those that leave the cluster as it is share one.
package cluster
