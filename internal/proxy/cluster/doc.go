// Package cluster brings commands to the servers of a Redis Cluster, for one session, and sends again what a server has
// refused for another server's sake. It does no I/O.
//
//	session ─Parcel.Post─▶ Sender ─Host.Transmit─▶ a lane to the server
//	session ◀─the handler─ Parcel ◀─Take, Kept──── replies, and what could not be sent
//
// A Parcel is a command on its way. It handles its own reply (parcel.go). A refusal begins a pause (pause.go). The
// Sender has the view by which commands are placed.
//
// Everything in it requires the lock of the session.
package cluster
